// Starts the job of checked options, or explains it.
#pragma once

#include <string>

#include "launcher/options.h"
#include "runtime/base/environment.h"

namespace distrun::launcher {

// Returns the exit code of distrun.
int run_command(const Options& options, const Environment& environment, const std::string& invoked_as);

}  // namespace distrun::launcher
