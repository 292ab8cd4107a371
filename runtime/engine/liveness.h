// Checks whether this process and the other ranks still run. It handles pings and their answers, lost connections, and
// the error that ends the job when a rank is gone. Only the token holder may use this.
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
  // Call this after reading the clock. If the process was stopped (Ctrl-Z in a shell, a batch system's suspend), the
  // result is the gap.
  std::optional<Suspension> see_clock(TimePoint now);
  // This rank has waited for other ranks until `now`. The time since the last see_clock() is no gap.
  void waited(TimePoint now) { seen_ = now; }

  // --- timers ---
  using Work = std::optional<OldestWork>;
  [[nodiscard]] std::optional<TimePoint> next_timer(const Work& work) const;
  // If other timers run, the loop must read the clock by this time.
  [[nodiscard]] TimePoint next_look() const;
  struct Check {
    std::vector<std::pair<int, message::Ping>> pings;  // ranks, and the ping for each
    std::vector<std::string> warnings;
    std::optional<net::RankWait> wait{};       // a wait that a warning reports for the first time
    bool wait_over = false;                    // the reported wait has ended
    std::optional<std::uint64_t> ask_waits{};  // ask all ranks how they wait, with this round number
    bool long_wait = false;                    // ask the launcher whether the hosts still reach each other
    Status abort;                              // not ok: the job ends
    bool deadlock = false;                     // because all ranks wait for one another
  };
  Check check(const Work& work, TimePoint now);
  // The coordinator wants to end the job with `why`. If a rank does not answer, that rank is named as the cause
  // instead.
  void end(const Status& why, bool deadlock = false) { watchdog_.end(why, deadlock); }
  // On the leader: `rank` has reported how it waits. True: all ranks wait for one another, and have done so for too
  // long.
  bool take_answer(int rank, const message::WaitAnswer& answer) { return deadlock_.take_answer(rank, answer); }
  // By rank: the operation that it last reported as its wait.
  [[nodiscard]] std::vector<std::string> operations() const { return deadlock_.operations(); }

  // --- pings ---
  static message::Ping clock_question(TimePoint now);
  message::Pong answer(const message::Ping& ping, const Work& work, TimePoint now);
  // True: the pong answers a clock_question().
  bool answered(int from, const message::Pong& pong);

  // --- ranks that leave or end ---
  void left(int rank) {  // the log has this entry
    detector_.left(rank);
    any_left_ = any_left_ || rank != 0;
  }
  [[nodiscard]] bool has_left(int rank) const { return detector_.has_left(rank); }
  // No rank waits for this rank any more.
  void drained(int rank);
  void take_event(const net::JobEvent& event, TimePoint now) { detector_.take_event(event, now); }
  void launcher_gone(const Status& why) { detector_.launcher_gone(why, rank_); }
  // An operation or a message failed, and no rank is known as the cause.
  void operation_failed(const Status& failure, TimePoint now) { detector_.suspect_operation(failure, now); }
  // Connections of backends have ended, and perhaps the one of the control plane. True: ask the leader whether it is
  // alive.
  bool connections_ended(const std::vector<LostPeer>& peers, const std::optional<EndedLink>& control, TimePoint now);
  [[nodiscard]] std::optional<ErrorInfo> knows_better(const ErrorInfo& other) const {
    return detector_.knows_better(other);
  }
  // The error that ends the job, once it is certain.
  [[nodiscard]] std::optional<ErrorInfo> verdict() const;

 private:
  bool suspect(const LostPeer& peer, TimePoint now);
  // Since when this rank's work waits. Empty if that wait cannot be part of a deadlock.
  [[nodiscard]] std::optional<TimePoint> waits_since(const Work& work) const;

  const int rank_;
  FailureDetector detector_;
  Watchdog watchdog_;
  LongWait long_wait_;
  DeadlockWatch deadlock_;
  std::optional<std::string> warned_work_;  // the work that this rank has warned about
  bool any_left_ = false;          // a rank other than rank 0 has left; rank 0 stays until the others have left
  TimePoint seen_ = Clock::now();  // when the clock was last read
};

}  // namespace distrun::engine
