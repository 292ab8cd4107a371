// The tensors in flight in this process. Its mutex is the only one that submitting threads share. The table refuses
// local errors at once: bad arguments, a name that is in flight, an unknown set, a job that has ended. It queues
// everything else for the holder of the progress token.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/annotations.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/protocol/signature.h"
#include "runtime/engine/protocol/tensor_key.h"
#include "runtime/engine/run/memory_in_flight.h"
#include "runtime/engine/run/submission.h"

namespace distrun::engine {

// The engine's side of a handle. The submitter writes it once. Then the token holder owns it until `done_` is set.
class Tensor final : public Handle {
 public:
  Tensor(const Submission& submission, Signature signature, TimePoint now)
      : submission_(submission), signature_(std::move(signature)), submitted_(now) {}

  [[nodiscard]] bool done() const override {
    if (!done_.load(std::memory_order_acquire)) return false;
    if (!is_free()) is_free_.store(true, std::memory_order_relaxed);
    return true;
  }
  // True once a caller has seen that it is done, and may use the memory again.
  [[nodiscard]] bool is_free() const { return is_free_.load(std::memory_order_relaxed); }
  [[nodiscard]] const Status& status() const override { return status_; }
  [[nodiscard]] const Output& output() const override { return output_; }

  [[nodiscard]] const Submission& submission() const { return submission_; }
  [[nodiscard]] const Signature& signature() const { return signature_; }
  [[nodiscard]] TensorKey key() const { return {.set = submission_.process_set, .name = submission_.name}; }
  [[nodiscard]] TimePoint submitted_at() const { return submitted_; }
  // Token holder, before completion.
  [[nodiscard]] Output& output() { return output_; }
  // True for a tensor of a rank that has joined. Its memory is made when it runs.
  [[nodiscard]] bool is_stand_in() const { return is_stand_in_; }
  void make_stand_in() { is_stand_in_ = true; }
  void own(backend::Memory memory) { memory_ = std::move(memory); }
  [[nodiscard]] const std::byte* input_memory() const {
    return is_stand_in_ ? memory_.get() : static_cast<const std::byte*>(submission_.input);
  }
  [[nodiscard]] std::byte* output_memory() const {
    return is_stand_in_ ? memory_.get() : static_cast<std::byte*>(submission_.output);
  }

 private:
  friend class TensorTable;
  const Submission submission_;
  const Signature signature_;
  const TimePoint submitted_;
  Status status_;
  Output output_;
  bool is_stand_in_ = false;
  backend::Memory memory_;
  std::atomic<bool> done_{false};
  mutable std::atomic<bool> is_free_{false};
};
using TensorPtr = std::shared_ptr<Tensor>;

struct Completion {
  TensorPtr tensor;
  Status status;
};

class TensorTable {
 public:
  explicit TensorTable(int rank) : rank_(rank) {}

  // Any thread. Submits all or none.
  Result<std::vector<HandlePtr>> submit(std::span<const Submission> submissions, TimePoint now)
      DISTRUN_EXCLUDES(mutex_);
  // True if take_new() has something to take. One relaxed-cost load; no lock.
  [[nodiscard]] bool has_new() const { return has_new_.load(std::memory_order_seq_cst); }
  [[nodiscard]] std::size_t in_flight() const DISTRUN_EXCLUDES(mutex_);

  // Any thread. From now on submissions are refused with `why`. The first reason stays, with one exception: the end of
  // the job (usable = false) replaces the reason that this rank is leaving.
  void close(const Status& why) DISTRUN_EXCLUDES(mutex_);
  [[nodiscard]] Status closed() const DISTRUN_EXCLUDES(mutex_);

  // The sets that callers may submit to. close_set: any thread. open_set may follow it, if the other ranks do not
  // remove the set. open_set and forget_set: token holder.
  void open_set(int set, std::vector<int> members) DISTRUN_EXCLUDES(mutex_);
  Status close_set(int set) DISTRUN_EXCLUDES(mutex_);
  void forget_set(int set) DISTRUN_EXCLUDES(mutex_);
  [[nodiscard]] Result<std::vector<int>> set_members(int set) const DISTRUN_EXCLUDES(mutex_);

  // Token holder: takes the tensors submitted since the last call, in order.
  void take_new(std::vector<TensorPtr>& out) DISTRUN_EXCLUDES(mutex_);
  // Token holder: nothing uses these tensors any more. Their names are free before their handles are done. So a caller
  // that sees a handle done can submit the name again.
  void complete(std::span<const Completion> completions) DISTRUN_EXCLUDES(mutex_);
  // Token holder: every tensor in flight, including the newest ones.
  [[nodiscard]] std::vector<TensorPtr> all_in_flight() const DISTRUN_EXCLUDES(mutex_);

 private:
  Status check(const Submission& submission) const DISTRUN_REQUIRES(mutex_);
  Status check_set(const Submission& submission) const DISTRUN_REQUIRES(mutex_);
  Status check_device(const Submission& submission) const DISTRUN_REQUIRES(mutex_);
  Status enter_memory(const std::vector<TensorPtr>& tensors) DISTRUN_REQUIRES(mutex_);
  [[nodiscard]] std::vector<MemoryUse> uses_of(const std::vector<TensorPtr>& tensors) const DISTRUN_REQUIRES(mutex_);
  Status enter_all(const std::vector<TensorPtr>& tensors) DISTRUN_REQUIRES(mutex_);
  [[nodiscard]] bool decides_gpu(const Tensor& tensor) const DISTRUN_REQUIRES(mutex_);
  void enter(const TensorPtr& tensor) DISTRUN_REQUIRES(mutex_);
  void remove(const Tensor& tensor) DISTRUN_REQUIRES(mutex_);

  const int rank_;
  mutable Mutex mutex_;
  std::unordered_map<TensorKey, TensorPtr, TensorKeyHash> in_flight_ DISTRUN_GUARDED_BY(mutex_);
  MemoryInFlight memory_ DISTRUN_GUARDED_BY(mutex_);
  std::vector<TensorPtr> new_ DISTRUN_GUARDED_BY(mutex_);
  std::map<int, std::vector<int>> sets_ DISTRUN_GUARDED_BY(mutex_);
  std::map<int, int> gpus_ DISTRUN_GUARDED_BY(mutex_);  // by set: the GPU of its first CUDA tensor
  std::set<int> joining_ DISTRUN_GUARDED_BY(mutex_);    // sets with a join of this rank in flight
  Status closed_ DISTRUN_GUARDED_BY(mutex_);
  std::atomic<bool> has_new_{false};
};

}  // namespace distrun::engine
