#pragma once

#include <string>

namespace distrun::tensorflow {

// Empty when every operation has been registered, else what went wrong.
const std::string& registration_report();

}  // namespace distrun::tensorflow
