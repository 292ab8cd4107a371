// The leader's agreement on tensors: which of them all members have submitted, their order, and which of them fail.
// Pure: no clock, no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/agreement/decisions.h"
#include "runtime/engine/agreement/membership.h"
#include "runtime/engine/protocol/decision_log.h"
#include "runtime/engine/protocol/messages.h"
#include "runtime/engine/protocol/suspension.h"
#include "runtime/engine/readiness/joined.h"
#include "runtime/engine/readiness/readiness.h"
#include "runtime/engine/readiness/stall.h"
#include "runtime/engine/readiness/tensor_ids.h"

namespace distrun::engine {

class TensorAgreement {
 public:
  struct Options {
    std::uint64_t fusion_threshold = 0;
    std::uint64_t cache_capacity = 0;
    StallLimits limits;
  };
  // `members` and `decisions` outlive this.
  TensorAgreement(const Options& options, const Membership& members, Decisions& decisions);

  void submitted(int rank, const message::Submitted& request, TimePoint now);
  void ready(int rank, TensorId id, TimePoint now);
  void has_read(int rank, std::uint64_t index) { ids_.has_read(rank, index); }
  // A rank has left: tensors that still wait for it can never run.
  void left();
  // Ready tensors of the set still run; all its other tensors fail.
  void remove_set(int set);
  // As Coordinator::act().
  void append_ready(std::span<const int> busy, bool hold = false);

  // --- limits of time ---
  void tick(TimePoint now);
  void look(NextLook& next) const;
  void suspended(const Suspension& gap);
  // The tensors that wait now.
  [[nodiscard]] std::vector<net::RankWait> waits();
  // Once no reported tensor waits any more, writes one line for those that now run.
  void report_resumed();

  // Whether this rank is in a join that waits for one of `others`.
  [[nodiscard]] bool waits_in_join(int rank, std::span<const int> others) const {
    return joined_.waits_for(rank, others, members_.sets());
  }
  [[nodiscard]] TimePoint last_join() const { return last_join_; }

 private:
  struct Group {  // the tensors of one group that are complete or have failed
    std::vector<PendingTensor*> complete;
    std::size_t seen = 0;  // number of complete and failed tensors
    Status failed;
    std::set<std::size_t> elsewhere;  // members that have another group instead, and never submit the rest of this one
  };
  using GroupKey = std::pair<int, std::uint64_t>;  // set, digest

  void add(int rank, SubmissionEvent event);
  void complete(PendingTensor& tensor, TimePoint now);
  void complete_in_group(PendingTensor& tensor, TimePoint now);
  void fail(PendingTensor& tensor, const Status& error);
  void fail_groups_of(const PendingTensor& tensor, const Status& why);
  void note_other_group(const PendingTensor& tensor, const PendingTensor& rival);
  [[nodiscard]] std::optional<Status> cannot_finish(const PendingTensor& tensor) const;
  void fail_unfinishable();
  void fail_with_group(PendingTensor& tensor, const Status& why);
  void check_left(PendingTensor& tensor);
  void count_joined(PendingTensor& tensor, TimePoint now);
  void join(int rank, int set, TimePoint now);
  TensorRef refer(const PendingTensor& tensor);
  void fail_rivals(TimePoint now);

  const std::uint64_t fusion_threshold_;
  const StallLimits limits_;
  const Membership& members_;
  Decisions& decisions_;
  TensorIds ids_;
  Readiness pending_;
  std::vector<PendingTensor*> ready_;  // complete, but not appended yet; owned by pending_
  std::map<GroupKey, Group> groups_;
  Joined joined_;
  TimePoint last_join_{};
  Resumed resumed_;
};

}  // namespace distrun::engine
