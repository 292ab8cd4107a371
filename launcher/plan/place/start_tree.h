// Which host starts the agent of which other one, where there are too many for the head to start them all. Only the
// starting is a tree: the messages of every agent go to the head directly. Pure.
#pragma once

#include <string>
#include <vector>

namespace distrun::launcher {

// As a starter: this machine.
inline constexpr int kHeadStarts = -1;

// By host, the number of the one that starts its agent. `by_ssh`: whether another host could do it, which it can when
// ssh does; the others are the head's, and start nobody. No host starts more than `fan_out`; up to so many of them the
// head starts all. Those of one level are spread evenly over the level above.
std::vector<int> start_tree(const std::vector<bool>& by_ssh, int fan_out);

// How many are started by whom; empty where the head starts all.
std::string tree_reason(const std::vector<int>& starters, int fan_out);

}  // namespace distrun::launcher
