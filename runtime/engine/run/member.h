// A member's half of the agreement: announces what was submitted here, by id where the tensor is known, and finds the
// local tensors that a log entry means. Pure; for the token holder.
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

// A tensor that is to run now.
struct RunTensor {
  TensorPtr tensor;
  std::vector<std::int64_t> first_dims;  // as in TensorRef
};

class Member {
 public:
  // `own_gpu`: where this rank stands in for others before it has had a CUDA tensor of its own, in any set.
  explicit Member(int own_gpu = 0) : own_gpu_(own_gpu) {}

  // Appends what the leader must hear to `out`. `refusal`: as in message::Submitted.
  void submit(const TensorPtr& tensor, std::vector<Message>& out, const std::string& refusal = {});

  // Entries of sets that this rank is in, in log order. What they name is in flight here, or the log is broken
  // (kProtocol).
  Result<std::vector<RunTensor>> run(const entry::Run& run);
  Result<TensorPtr> fail(const entry::Fail& failed);
  // What was announced by an id that is evicted stays announced: the leader knows what the id stood for until this
  // rank has read the eviction, and names the tensor in full.
  void evict(const entry::Evict& evict);
  void remove_set(int set) {
    cache_.erase_set(set);
    gpus_.erase(set);
  }

  [[nodiscard]] std::size_t waiting() const { return announced_.size(); }
  [[nodiscard]] std::size_t known() const { return cache_.size(); }
  // The tensor that has waited longest; null if none does.
  [[nodiscard]] TensorPtr oldest() const;

 private:
  Result<TensorPtr> take(TensorKey key);
  Result<TensorPtr> take_or_stand_in(TensorKey key, const Signature* signature);

  int own_gpu_;              // where its last CUDA tensor was, or a join said
  std::map<int, int> gpus_;  // by set: the one that this rank's CUDA tensors are on
  ResponseCache cache_;
  std::set<int> joined_;  // process sets whose join is under way: what others submit to them runs here too
  std::unordered_map<TensorKey, TensorPtr, TensorKeyHash> announced_;  // keys view the tensors' names
};

}  // namespace distrun::engine
