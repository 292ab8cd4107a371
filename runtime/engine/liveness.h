// Whether this process and the other ranks still run: pings and their answers, lost connections, and how the job ends
// when a rank is gone. Token holder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/monitoring/deadlock.h"
#include "runtime/engine/monitoring/failure_detector.h"
#include "runtime/engine/monitoring/long_wait.h"
#include "runtime/engine/monitoring/watchdog.h"
#include "runtime/engine/protocol/messages.h"
#include "runtime/engine/protocol/suspension.h"
#include "runtime/engine/run/process_set.h"

namespace distrun::engine {

class Liveness {
 public:
  explicit Liveness(const WatchdogOptions& options)
      : rank_(options.rank),
        detector_(options.hosts),
        watchdog_(options),
        long_wait_(options.path_check),
        deadlock_(static_cast<int>(options.hosts.size()), options.rank == 0 ? options.deadlock : Duration::zero()) {}

  // --- this process ---
  // The clock is read. A stop of the process (a shell's Ctrl-Z, a batch system's suspend) shows as a gap.
  std::optional<Suspension> see_clock(TimePoint now);
  // This rank has waited for others until now, which is no gap.
  void waited(TimePoint now) { seen_ = now; }

  // --- timers ---
  using Work = std::optional<OldestWork>;
  [[nodiscard]] std::optional<TimePoint> next_timer(const Work& work) const;
  // With other timers running, the clock is to be read by then.
  [[nodiscard]] TimePoint next_look() const;
  struct Check {
    std::vector<std::pair<int, message::Ping>> pings;  // rank and what to ask it
    std::vector<std::string> warnings;
    std::optional<net::RankWait> wait{};       // what they tell for the first time
    bool wait_over = false;                    // that is no more
    std::optional<std::uint64_t> ask_waits{};  // all ranks, by this number
    bool long_wait = false;                    // do the hosts reach each other?
    Status abort;                              // not ok: the job ends
  };
  Check check(const Work& work, TimePoint now);
  // The coordinator ends the job with `why`, unless a rank that does not answer is the cause.
  void end(const Status& why) { watchdog_.end(why); }
  // At the leader: true if it follows that all ranks wait for one another, and have for too long.
  bool told(int rank, const message::WaitTold& said) { return deadlock_.told(rank, said); }
  // By rank, what it said that it waits in.
  [[nodiscard]] std::vector<std::string> operations() const { return deadlock_.operations(); }

  // --- pings ---
  static message::Ping clock_question(TimePoint now);
  message::Pong answer(const message::Ping& ping, const Work& work, TimePoint now);
  // True: it answers a clock_question(), of whoever asked it.
  bool answered(int from, const message::Pong& pong);

  // --- ranks that go ---
  void left(int rank) {  // the log says so
    detector_.left(rank);
    any_left_ = any_left_ || rank != 0;
  }
  [[nodiscard]] bool has_left(int rank) const { return detector_.has_left(rank); }
  // Nobody needs this rank any more.
  void drained(int rank);
  void heard(const net::JobEvent& event, TimePoint now) { detector_.heard(event, now); }
  void launcher_gone(const Status& why) { detector_.launcher_gone(why, rank_); }
  // An operation or a message failed, and no rank is known to be the reason.
  void operation_failed(const Status& failure, TimePoint now) { detector_.suspect_operation(failure, now); }
  // Connections that ended: of backends, and of the control plane, if any. True: ask the leader whether it is there.
  bool connections_ended(const std::vector<LostPeer>& peers, const std::optional<EndedLink>& control, TimePoint now);
  [[nodiscard]] std::optional<ErrorInfo> knows_better(const ErrorInfo& other) const {
    return detector_.knows_better(other);
  }
  // The error that ends the job, once it is certain.
  [[nodiscard]] std::optional<ErrorInfo> verdict() const;

 private:
  bool suspect(const LostPeer& peer, TimePoint now);
  // Since when this rank's work has waited, as far as a deadlock may come of it.
  [[nodiscard]] std::optional<TimePoint> waits_since(const Work& work) const;

  const int rank_;
  FailureDetector detector_;
  Watchdog watchdog_;
  LongWait long_wait_;
  DeadlockWatch deadlock_;
  std::optional<std::string> told_;  // a warning of this rank's has told of this work
  bool any_left_ = false;            // other than rank 0, which stays until the others have left
  TimePoint seen_ = Clock::now();    // the clock, last
};

}  // namespace distrun::engine
