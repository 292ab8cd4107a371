// Reads the files that users write: hostfiles, files of variables, scripts.
#pragma once

#include <string>

#include "runtime/base/status.h"

namespace distrun::launcher {

// The text as in unix_text(). "-" is standard input.
Result<std::string> read_text(const std::string& path);

}  // namespace distrun::launcher
