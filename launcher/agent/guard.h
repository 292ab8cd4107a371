// A tiny process above an agent on a host where nobody else would notice that the agent was killed.
#pragma once

#include <optional>

#include "launcher/agent/lease/lease_end.h"

namespace distrun::launcher {

// What carries the head's orders, and ends with it: standard input, or a connection that the agent makes. Then standard
// input is somebody else's, may be at its end from the start (`ssh -n`), and becomes /dev/null.
enum class OrdersBy { kStandardInput, kConnection };

// Forks. The child returns with nothing and goes on as the agent. The parent waits for it; when it has ended, whatever
// it left is ended too, and the parent returns the agent's exit code. Where the agent's lease (`lease_end`, shared) is
// over and the agent does nothing about it, as one that is stopped, the parent ends what is below it. The parent passes
// on TERM, USR1 and USR2, and the terminal's signals (INT, HUP, QUIT) as TERM, unless they were ignored before.
std::optional<int> stand_guard(OrdersBy orders, const LeaseEnd& lease_end);

}  // namespace distrun::launcher
