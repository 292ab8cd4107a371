// A member's side of the agreement. It announces local tensors, by id if the tensor is known, and finds the local
// tensors that a log entry names. Pure: no clock, no I/O. Only the token holder may use this.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/protocol/decision_log.h"
#include "runtime/engine/protocol/messages.h"
#include "runtime/engine/protocol/response_cache.h"
#include "runtime/engine/run/tensor_table.h"

namespace distrun::engine {

// A tensor that runs now.
struct RunTensor {
  TensorPtr tensor;
  std::vector<std::int64_t> first_dims;  // as in TensorRef
};

class Member {
 public:
  // `own_gpu`: the GPU for stand-ins of this rank, until it has had a CUDA tensor in any set.
  explicit Member(int own_gpu = 0) : own_gpu_(own_gpu) {}

  // Appends the messages for the leader to `out`. `refusal`: as in message::Submitted.
  void submit(const TensorPtr& tensor, std::vector<Message>& out, const std::string& refusal = {});

  // Follows an entry of a set that this rank is in. Entries come in log order. The tensors that an entry names must be
  // in flight here; otherwise the log is broken (kProtocol).
  Result<std::vector<RunTensor>> run(const entry::Run& run);
  Result<TensorPtr> fail(const entry::Fail& failed);
  // A tensor that was announced by an evicted id stays announced. The leader knows the id's tensor until this rank has
  // read the eviction, and names the tensor in full.
  void evict(const entry::Evict& evict);
  void remove_set(int set) {
    cache_.erase_set(set);
    gpus_.erase(set);
  }

  [[nodiscard]] std::size_t waiting() const { return announced_.size(); }
  [[nodiscard]] std::size_t known() const { return cache_.size(); }
  // The tensor that has waited longest. Null: none waits.
  [[nodiscard]] TensorPtr oldest() const;

 private:
  Result<TensorPtr> take(TensorKey key);
  Result<TensorPtr> take_or_stand_in(TensorKey key, const Signature* signature);

  int own_gpu_;              // the GPU of its last CUDA tensor, or the one that a join named
  std::map<int, int> gpus_;  // by set: the GPU of this rank's CUDA tensors
  ResponseCache cache_;
  std::set<int> joined_;  // process sets with a join in flight: the others' operations on them run here too
  std::unordered_map<TensorKey, TensorPtr, TensorKeyHash> announced_;  // keys refer to the tensors' names
};

}  // namespace distrun::engine
