// Ranks that ran out of data have joined. They are treated as if they had submitted every tensor of the process set,
// until all its members have joined. This decides the consequences for the tensors. Pure.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/readiness/readiness.h"

namespace distrun::engine {

// The leader's record: which ranks have joined which process set, in order.
class Joined {
 public:
  void join(int set, int rank) { ranks_[set].push_back(rank); }
  void forget(int set) { ranks_.erase(set); }
  [[nodiscard]] std::span<const int> ranks(int set) const {
    const auto found = ranks_.find(set);
    return found == ranks_.end() ? std::span<const int>() : std::span<const int>(found->second);
  }
  // True if this rank's join of some set waits for one of `others`. `members`: by set.
  [[nodiscard]] bool waits_for(int rank, std::span<const int> others,
                               const std::map<int, std::vector<int>>& members) const;

 private:
  std::map<int, std::vector<int>> ranks_;
};

// Why `tensor` cannot run without the members that have joined; ok if it can.
Status check_joined(const PendingTensor& tensor, const std::vector<std::string>& hosts);

}  // namespace distrun::engine
