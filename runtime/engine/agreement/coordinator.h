// The leader's decisions: what every rank says goes in, the decision log comes out. Pure: no clock, no I/O, no threads;
// the same events give the same log. So it runs alike in production, in the unit tests and in the simulation.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/agreement/call_agreement.h"
#include "runtime/engine/agreement/decisions.h"
#include "runtime/engine/agreement/membership.h"
#include "runtime/engine/agreement/tensor_agreement.h"
#include "runtime/engine/protocol/decision_log.h"
#include "runtime/engine/protocol/messages.h"
#include "runtime/engine/protocol/suspension.h"
#include "runtime/engine/readiness/stall.h"

namespace distrun::engine {

struct CoordinatorOptions {
  int world_size = 1;
  std::vector<std::string> hosts;  // by world rank, for texts
  std::uint64_t fusion_threshold = 0;
  std::uint64_t cache_capacity = 0;
  Duration stall_warning{};              // 0: off
  Duration stall_shutdown{};             // 0: off
  std::atomic<int>* next_set = nullptr;  // see EngineOptions
};

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options);

  // --- events. A message that no sound member sends ends the job (kProtocol). ---
  void submitted(int rank, const message::Submitted& request, TimePoint now);
  void ready(int rank, TensorId id, TimePoint now);
  void has_read(int rank, std::uint64_t index) {
    tensors_.has_read(rank, index);
  }  // entries read when it sent what follows
  // `refused`: the rank could not do its part of the call, which fails on all.
  void called(int rank, Call call, TimePoint now, const Status& refused = {});
  void set_made(int rank, int set, const Status& result);
  void leave(int rank);
  void drained(int rank);                                        // has left, and takes part in nothing any more
  void end_timeline() { decisions_.append(entry::Timeline{}); }  // it cannot be written any more: all stop recording
  void died(const Status& why) { decisions_.died(why); }
  void tick(TimePoint now);  // due at next_tick()
  void suspended(const Suspension& gap);

  // What follows from the events so far. Ready tensors of `busy` sets are kept back, to be fused with what else becomes
  // ready until the set has room, and those of all sets if `hold`; all else is decided at once.
  Actions act(std::span<const int> busy = {}, bool hold = false);

  // When tick() has something to report; never while nothing waits.
  [[nodiscard]] std::optional<TimePoint> next_tick() const;
  // Who waits for whom now.
  [[nodiscard]] std::vector<net::RankWait> waits();
  [[nodiscard]] std::uint64_t log_size() const { return decisions_.log_size(); }
  [[nodiscard]] bool finished() const { return decisions_.finished(); }

 private:
  // Circles of ranks that wait for one another are looked for again.
  void look_for_circles(TimePoint now);

  const StallLimits limits_;
  Membership members_;
  Decisions decisions_;
  TensorAgreement tensors_;
  CallAgreement calls_;
  TimePoint news_at_{};  // when something was submitted, joined or called last
  std::optional<TimePoint> look_at_;
};

}  // namespace distrun::engine
