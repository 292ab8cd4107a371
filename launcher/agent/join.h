// `distrun agent --join`: an agent that another host's agent has started by ssh. Its standard input says where the head
// is; from then on it is an agent like any other.
#pragma once

#include <cstdint>

namespace distrun::launcher {

// In an agent's Hello, before the number of its host in the job's list.
inline constexpr const char* kJoinPurpose = "join:";
// The one frame on its standard input: a Join.
inline constexpr std::uint8_t kJoinFrame = 1;

int join_main();

}  // namespace distrun::launcher
