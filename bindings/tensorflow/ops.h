#pragma once

#include <string>

namespace distrun::tensorflow {

// Empty if every operation was registered, else the reason.
const std::string& registration_report();

}  // namespace distrun::tensorflow
