// The environment as a value. Code that needs a variable takes the environment as an argument.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace distrun {

using Environment = std::map<std::string, std::string>;
Environment process_environment();  // the only function that reads environ

// For paths that no shell has expanded (--output-dir=~/logs, a variable, a config file). "~" and "~/x" are in HOME, or
// in the home of this account if HOME is not set; "~name/x" is in the home of that account. Other paths, and those of
// accounts that do not exist, stay as they are.
std::string from_home(std::string_view path, const Environment& environment);
// The fault of a path with the home of an account that does not exist; else empty. A shell leaves such a path as it is,
// and a folder of that name would be made.
std::string fault_of_home(std::string_view path, const Environment& environment);
// from_home() for each path of a list with colons.
std::string each_from_home(std::string_view paths, const Environment& environment);

}  // namespace distrun
