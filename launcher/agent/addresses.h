// The addresses of this host as the kernel lists them.
#pragma once

#include <vector>

#include "launcher/plan/network.h"

namespace distrun::launcher {

// Of interfaces that are up and running, in the kernel's order, loopback included: plan/network.h judges them. At most
// kMaxCandidates; a host of many containers has link-local ones by the hundred, which come last.
std::vector<Candidate> scan_addresses();

}  // namespace distrun::launcher
