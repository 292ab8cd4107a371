// The environment as a value. Code that reads a variable takes it as an argument.
#pragma once

#include <map>
#include <string>

namespace distrun {

using Environment = std::map<std::string, std::string>;
Environment process_environment();  // the only reader of environ

}  // namespace distrun
