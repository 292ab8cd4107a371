// The environment as a value: whoever decides by a variable is given one.
#pragma once

#include <map>
#include <string>

namespace distrun {

using Environment = std::map<std::string, std::string>;
Environment process_environment();  // the only reader of environ

}  // namespace distrun
