// The last failures of operations with everything the runtime knows of them: a framework's exceptions carry a text
// only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "distrun/distrun.h"

namespace distrun::bridge {

void remember_failure(const distrun_error& error);

// Fills `error` with the last failure whose message occurs in `text`; false if there is none. The pointers stay valid
// until the next call on this thread.
bool find_failure(const std::string& text, distrun_error& error);

}  // namespace distrun::bridge
