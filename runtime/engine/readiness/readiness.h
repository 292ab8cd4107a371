// The leader's record of tensors that some ranks have submitted: which ranks, and when. Pure.
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
  std::map<std::size_t, Signature> differing;     // by member: signatures that are not compatible with `signature`
  std::vector<std::int64_t> first_dims;           // allgather, alltoall: by member; join: the rank that joined last
  std::vector<std::vector<std::int64_t>> splits;  // alltoall: by member; empty: equal shares
  std::vector<int> joined_ranks;                  // world ranks that did not submit the tensor because they have joined
  std::vector<bool> joined_members;               // the same by member; empty: none
  std::size_t refusing = 0;                       // number of members that report that its group cannot run
  std::string refusal;                            // the reason of the first of them
  TensorId id = kNoId;  // the id that all submitters so far used; kNoId: at least one sent a full request
  TimePoint first;      // time of the first submission
  TimePoint reported;   // time of the last stall report

  static constexpr TimePoint kNever = TimePoint::max();
  [[nodiscard]] bool complete() const { return missing == 0; }
  [[nodiscard]] bool has(std::size_t member) const { return when[member] != kNever; }
  [[nodiscard]] std::vector<int> missing_ranks() const;
  [[nodiscard]] std::vector<int> submitted_ranks() const;  // without the excused ranks
  [[nodiscard]] bool joined_instead(std::size_t member) const {
    return !joined_members.empty() && joined_members[member];
  }
  // True: one member has submitted it, and none is excused.
  [[nodiscard]] bool is_new() const { return missing + 1 == when.size(); }
  // The signature of this member, which must have submitted the tensor.
  [[nodiscard]] const Signature& signature_of(std::size_t member) const;
  // The log's form of its dimensions: see TensorRef::first_dims.
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
  // Null: this member has already submitted the tensor, so the peer is broken.
  PendingTensor* add(const SubmissionEvent& event);
  void erase(const PendingTensor& tensor);  // consumed by a log entry
  // This member has joined, so the tensor does not wait for it any more.
  static void mark_joined(PendingTensor& tensor, std::size_t member, TimePoint now);

  [[nodiscard]] PendingTensor* find(int set, std::string_view name);  // null: none
  [[nodiscard]] bool contains(int set, std::string_view name) const;
  [[nodiscard]] bool empty() const { return pending_.empty(); }
  [[nodiscard]] std::size_t size() const { return pending_.size(); }
  void for_each(const std::function<void(const PendingTensor&)>& visit) const;
  // The incomplete tensors in order of first submission. Unlike for_each, this order is deterministic.
  [[nodiscard]] std::vector<PendingTensor*> waiting();

 private:
  std::unordered_map<TensorKey, std::unique_ptr<PendingTensor>, TensorKeyHash> pending_;  // keys refer to the names
};

// Checks the signatures of all members: ok, or the error that every rank gets.
Status verdict(const PendingTensor& tensor, const std::vector<std::string>& hosts);

}  // namespace distrun::engine
