// Ranks that ran out of data: they have joined, and count as having submitted every tensor of the process set until all
// its members have. What follows for the tensors is decided here; pure but for the memory of a stand-in.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/readiness.h"
#include "runtime/engine/tensor_table.h"

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

// What a joined rank contributes: the neutral element of the reduction, no rows to an allgather, a place for what is
// broadcast. Its memory is fill_stand_in's.
TensorPtr make_stand_in(int set, std::string_view name, Signature signature, int gpu);
// Gives it memory of the backend that it runs on. kOutOfMemory.
Status fill_stand_in(Tensor& tensor, backend::Backend& backend);

// Element that changes no other under `op`, as its bytes in memory; for tests too.
std::vector<std::byte> neutral_element(ReduceOp op, DType dtype);

}  // namespace distrun::engine
