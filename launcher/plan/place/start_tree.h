// Decides which host starts which other agents, if there are too many for the head. Only the start is a
// tree: every agent sends its messages directly to the head. Pure.
#pragma once

#include <string>
#include <vector>

namespace distrun::launcher {

// Stands for the head in a list of starters.
inline constexpr int kHeadStarts = -1;

// Returns, by host, the number of the host that starts its agent. `by_ssh` says by host whether ssh starts the agent,
// because then another host can do that. The head starts all other hosts, and these start none themselves. No host
// starts more than `fan_out` others. The head starts all ssh hosts if there are at most `fan_out`. The hosts of one
// level are spread evenly over the level above.
std::vector<int> start_tree(const std::vector<bool>& by_ssh, int fan_out);

// A sentence on how many agents each part starts. Empty if the head starts all.
std::string tree_reason(const std::vector<int>& starters, int fan_out);

}  // namespace distrun::launcher
