#include "launcher/plan/place/start_tree.h"

#include <algorithm>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {

std::vector<int> start_tree(const std::vector<bool>& by_ssh, int fan_out) {
  std::vector<int> starters(by_ssh.size(), kHeadStarts);
  std::vector<std::size_t> hosts;
  for (std::size_t i = 0; i < by_ssh.size(); ++i) {
    if (by_ssh[i]) hosts.push_back(i);
  }
  const std::size_t each = static_cast<std::size_t>(std::max(1, fan_out));
  std::size_t above = 0;  // where the level above begins
  std::size_t level = std::min(hosts.size(), each);
  while (level < hosts.size()) {
    const std::size_t width = level - above;
    const std::size_t size = std::min(hosts.size() - level, width * each);
    for (std::size_t i = 0; i < size; ++i) {
      starters[hosts[level + i]] = static_cast<int>(hosts[above + i * width / size]);
    }
    above = level;
    level += size;
  }
  return starters;
}

std::string tree_reason(const std::vector<int>& starters, int fan_out) {
  const auto here = static_cast<std::size_t>(std::count(starters.begin(), starters.end(), kHeadStarts));
  if (here == starters.size()) return "";
  return "agents: " + std::to_string(here) + " of " + std::to_string(starters.size()) +
         " are started from this machine, the others by hosts that already have an agent, at most " +
         std::to_string(fan_out) + " by each";
}

}  // namespace distrun::launcher
