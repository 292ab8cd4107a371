// The leader's agreement on calls that ranks make together: process sets and the timeline. Pure: no clock, no I/O.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/agreement/call_board.h"
#include "runtime/engine/agreement/decisions.h"
#include "runtime/engine/agreement/membership.h"
#include "runtime/engine/agreement/tensor_agreement.h"
#include "runtime/engine/protocol/messages.h"
#include "runtime/engine/protocol/suspension.h"
#include "runtime/engine/readiness/stall.h"

namespace distrun::engine {

class CallAgreement {
 public:
  // `members`, `tensors` and `decisions` outlive this.
  CallAgreement(const StallLimits& limits, Membership& members, TensorAgreement& tensors, Decisions& decisions);

  // `refused`: why the rank could not do its part of the call. The call then fails on all ranks.
  void called(int rank, Call call, TimePoint now, const Status& refused);
  void set_made(int rank, int set, const Status& result);
  // Starts and ends all calls that can be started or ended now.
  void run();

  // --- limits of time ---
  void tick(TimePoint now);
  void look(NextLook& next) const;
  // The calls that wait now.
  [[nodiscard]] std::vector<net::RankWait> waits() const;
  void suspended(const Suspension& gap) { calls_.suspended(gap); }

 private:
  struct MakingSet {
    CallBoard::Next call;
    std::size_t missing = 0;
    std::vector<bool> reported;  // by member
    Status failed;
  };

  [[nodiscard]] std::vector<int> takers_of(const Call& call) const;
  void start_call(CallBoard::Next call);
  void add_set(CallBoard::Next call);
  void remove_set(const CallBoard::Next& call);
  void end_call(const CallBoard::Next& call, const Status& result, int set = -1);
  void end_unfinishable(const CallBoard::Waiting& waiting, TimePoint now);
  bool fail_joined(const CallBoard::Waiting& waiting, TimePoint now);

  const StallLimits limits_;
  Membership& members_;
  TensorAgreement& tensors_;
  Decisions& decisions_;
  CallBoard calls_;
  std::map<int, MakingSet> making_;  // by set
  bool reported_ = false;            // waiting calls were reported since a call last ended
};

}  // namespace distrun::engine
