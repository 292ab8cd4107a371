// What --encrypt and --checksum rule out where a job has several hosts. Pure.
#pragma once

#include <cstddef>

#include "launcher/options.h"
#include "runtime/base/settings.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// Refuses what would send tensors to other hosts unprotected, as far as the command and the settings show it; the ranks
// choose their backends among those that can. `hosts` get ranks. kInvalidArgument where the user has named the hosts,
// else kUnsupported.
Status check_protection(const Options& options, const Settings& settings, std::size_t hosts);

}  // namespace distrun::launcher
