// `distrun agent --join`: an agent that the agent of another host has started by ssh. It reads the head's address from
// standard input. After it has connected, it behaves like any other agent.
#pragma once

#include <cstdint>

namespace distrun::launcher {

// Prefix of the purpose in an agent's Hello; the number of its host in the job's list follows.
inline constexpr const char* kJoinPurpose = "join:";
// Type of the only frame on its standard input, a Join.
inline constexpr std::uint8_t kJoinFrame = 1;

int join_main();

}  // namespace distrun::launcher
