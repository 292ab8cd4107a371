// The environment as a value. Code that needs a variable takes the environment as an argument.
#pragma once

#include <map>
#include <string>

namespace distrun {

using Environment = std::map<std::string, std::string>;
Environment process_environment();  // the only function that reads environ

}  // namespace distrun
