// What `distrun check --build` says of the backends of this machine.
#pragma once

#include <string>

#include "runtime/base/settings.h"

namespace distrun::backend {

// One line each: "tcp: ok (reason)" or "mpi: not available (reason)". Built-in backends, plug-ins that were found, and
// the plug-ins of the project that were not. Loads plug-ins; makes nothing else.
std::string describe_backends(const Settings& settings);
std::string describe_backends(const Settings& settings, const std::string& plugin_folder);  // for tests

}  // namespace distrun::backend
