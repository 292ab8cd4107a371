// A small process above an agent, for hosts where no other process would notice that the agent was killed.
#pragma once

#include <optional>

#include "launcher/agent/lease/lease_end.h"

namespace distrun::launcher {

// The channel that carries the head's orders and closes when the head ends. It is standard input, or a connection that
// the agent opens. With a connection, standard input belongs to another program and may be at end of file from the
// start (`ssh -n`). It is then replaced by /dev/null.
enum class OrdersBy { kStandardInput, kConnection };

// Forks. In the child it returns nullopt, and the child continues as the agent. The parent waits for the agent to end.
// It then kills all processes that the agent left, and returns the agent's exit code. If the agent's lease
// (`lease_end`, shared) is over and the agent does not react, for instance because it is stopped, the parent ends the
// processes below it. The parent passes on TERM, USR1, USR2 and QUIT. It passes on INT and HUP as TERM. The terminal's
// signals (INT, HUP, QUIT) stay ignored if they were ignored at the start.
std::optional<int> stand_guard(OrdersBy orders, const LeaseEnd& lease_end);

}  // namespace distrun::launcher
