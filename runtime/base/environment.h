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
// The same for each path of a list with colons.
std::string each_from_home(std::string_view paths, const Environment& environment);

}  // namespace distrun
