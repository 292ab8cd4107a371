// Who has submitted what, and when: the leader's record of tensors that some ranks have submitted. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/protocol/decision_log.h"
#include "runtime/engine/protocol/signature.h"
#include "runtime/engine/protocol/tensor_key.h"

namespace distrun::engine {

// One tensor between its first submission and the log entry that consumes it.
struct PendingTensor {
  int set = 0;
  std::string name;
  const std::vector<int>* members = nullptr;  // world ranks of the set; outlives this
  Signature signature;                        // the first submitter's
  std::vector<TimePoint> when;                // by member; kNever: not yet
  std::size_t missing = 0;
  std::map<std::size_t, Signature> odd;           // by member: not compatible with `signature`
  std::vector<std::int64_t> first_dims;           // allgather, alltoall: by member; join: who was last
  std::vector<std::vector<std::int64_t>> splits;  // alltoall: by member; empty: equal shares
  std::vector<int> excused;                       // world ranks that have joined instead of submitting it
  std::vector<bool> excuses;                      // the same by member; empty: none
  std::size_t refusing = 0;                       // members that say that its group cannot run
  std::string refusal;                            // why, of the first of them
  TensorId id = kNoId;  // the id by which all submitters so far announced it; kNoId: at least one sent a full request
  TimePoint first;      // submission
  TimePoint reported;   // last stall report

  static constexpr TimePoint kNever = TimePoint::max();
  [[nodiscard]] bool complete() const { return missing == 0; }
  [[nodiscard]] bool has(std::size_t member) const { return when[member] != kNever; }
  [[nodiscard]] std::vector<int> missing_ranks() const;
  [[nodiscard]] std::vector<int> submitted_ranks() const;  // without those excused
  [[nodiscard]] bool is_excused(std::size_t member) const { return !excuses.empty() && excuses[member]; }
  // Of one member only, and nobody was excused.
  [[nodiscard]] bool is_new() const { return missing + 1 == when.size(); }
  // What this member, which has submitted it, says of it.
  [[nodiscard]] const Signature& signature_of(std::size_t member) const;
  // What the log carries for it: see TensorRef::first_dims.
  [[nodiscard]] std::vector<std::int64_t> logged_dims() const;
};

// One member's submission of a tensor.
struct SubmissionEvent {
  int set = 0;
  std::string_view name;
  const std::vector<int>* members = nullptr;
  std::size_t member = 0;  // position of the submitter in `members`
  const Signature* signature = nullptr;
  std::int64_t first_dim = 0;              // allgather, alltoall
  std::span<const std::int64_t> splits{};  // alltoall
  std::string_view refusal{};
  TensorId id = kNoId;
  TimePoint now;
};

class Readiness {
 public:
  // Null if this member has submitted the tensor already (a broken peer).
  PendingTensor* add(const SubmissionEvent& event);
  void erase(const PendingTensor& tensor);  // consumed by a log entry
  // This member has joined: the tensor does not wait for it any more.
  static void excuse(PendingTensor& tensor, std::size_t member, TimePoint now);

  [[nodiscard]] PendingTensor* find(int set, std::string_view name);  // null: none
  [[nodiscard]] bool contains(int set, std::string_view name) const;
  [[nodiscard]] bool empty() const { return pending_.empty(); }
  [[nodiscard]] std::size_t size() const { return pending_.size(); }
  void for_each(const std::function<void(const PendingTensor&)>& visit) const;
  // The incomplete ones, in order of first submission (a deterministic order, unlike for_each).
  [[nodiscard]] std::vector<PendingTensor*> waiting();

 private:
  std::unordered_map<TensorKey, std::unique_ptr<PendingTensor>, TensorKeyHash> pending_;  // keys view the names
};

// What the members' signatures come to once all are there: ok, or the error that every rank gets.
Status verdict(const PendingTensor& tensor, const std::vector<std::string>& hosts);

}  // namespace distrun::engine
