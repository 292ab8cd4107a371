// Ranks that ran out of data: they have joined, and count as having submitted every tensor of the process set until all
// its members have. What follows for the tensors is decided here; pure.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/readiness/readiness.h"

namespace distrun::engine {

// The leader's record: who has joined which process set, in order.
class Joined {
 public:
  void join(int set, int rank) { ranks_[set].push_back(rank); }
  void forget(int set) { ranks_.erase(set); }
  [[nodiscard]] std::span<const int> ranks(int set) const {
    const auto found = ranks_.find(set);
    return found == ranks_.end() ? std::span<const int>() : std::span<const int>(found->second);
  }
  // Whether this rank's join of some set of `members` (by set) waits for one of `others`.
  [[nodiscard]] bool waits_for(int rank, std::span<const int> others,
                               const std::map<int, std::vector<int>>& members) const;

 private:
  std::map<int, std::vector<int>> ranks_;
};

// Why `tensor`, of which some members have joined, cannot run without them; ok if it can.
Status check_joined(const PendingTensor& tensor, const std::vector<std::string>& hosts);

}  // namespace distrun::engine
