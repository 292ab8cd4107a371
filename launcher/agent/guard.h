// A tiny process above an agent on a host where nobody else would notice that the agent was killed.
#pragma once

#include <optional>

namespace distrun::launcher {

// Forks. The child returns with nothing and goes on as the agent. The parent waits for it; when it has ended, whatever
// it left is ended too, and the parent returns the agent's exit code. TERM to the parent is passed on.
std::optional<int> stand_guard();

}  // namespace distrun::launcher
