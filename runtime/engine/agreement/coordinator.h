// The leader's decisions. The input is every rank's messages; the output is the decision log. Pure: no clock, no I/O,
// no threads. The same events give the same log, so it runs in the same way in production, in the unit tests and in the
// simulation.
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

  // --- events. A message that a correct member never sends ends the job (kProtocol). ---
  void submitted(int rank, const message::Submitted& request, TimePoint now);
  void ready(int rank, TensorId id, TimePoint now);
  void has_read(int rank, std::uint64_t index) {
    tensors_.has_read(rank, index);
  }  // number of entries the rank had read when it sent its next messages
  // `refused`: why the rank could not do its part of the call. The call then fails on all ranks.
  void called(int rank, Call call, TimePoint now, const Status& refused = {});
  void set_made(int rank, int set, const Status& result);
  void leave(int rank);
  void drained(int rank);  // the rank has left, and takes part in nothing any more
  // the file cannot be written any more: all ranks stop recording
  void end_timeline() { decisions_.append(entry::Timeline{}); }
  void died(const Status& why) { decisions_.died(why); }
  void tick(TimePoint now);  // due at next_tick()
  void suspended(const Suspension& gap);

  // Returns the decisions that follow from the events so far. Ready tensors of `busy` sets are held back, to be fused
  // with others that become ready until the set has room. With `hold`, those of all sets are held back. Everything else
  // is decided at once.
  Actions act(std::span<const int> busy = {}, bool hold = false);

  // When tick() has something to report. Empty while nothing waits.
  [[nodiscard]] std::optional<TimePoint> next_tick() const;
  // Which ranks wait now, and for which ranks.
  [[nodiscard]] std::vector<net::RankWait> waits();
  [[nodiscard]] std::uint64_t log_size() const { return decisions_.log_size(); }
  [[nodiscard]] bool finished() const { return decisions_.finished(); }

 private:
  // Schedules another search for circles of ranks that wait for one another.
  void look_for_circles(TimePoint now);

  const StallLimits limits_;
  Membership members_;
  Decisions decisions_;
  TensorAgreement tensors_;
  CallAgreement calls_;
  TimePoint news_at_{};  // when a rank last submitted, joined or called
  std::optional<TimePoint> check_at_;
};

}  // namespace distrun::engine
