// Checks what --encrypt and --checksum exclude in a job of several hosts. Pure.
#pragma once

#include <cstddef>

#include "launcher/options.h"
#include "runtime/base/settings.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// Returns an error if the command or the settings would send tensors to other hosts unprotected. The ranks themselves
// choose only backends that protect. `hosts` is the number of hosts with ranks. The error is kInvalidArgument if the
// user has named the hosts, else kUnsupported.
Status check_protection(const Options& options, const Settings& settings, std::size_t hosts);

}  // namespace distrun::launcher
