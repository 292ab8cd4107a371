// Checks whether all ranks still answer. The coordinator names ranks that have not submitted a tensor. The watchdog
// finds ranks that do not answer at all (stopped, swapped out, unreachable), even while data moves, and even if the
// leader is such a rank. It sends questions only after something has been in flight for the stall warning time. If the
// stall shutdown time is shorter, or the warning is off, that time is used instead. So an idle job sends nothing.
// Questions come at even intervals; reports come less and less often. Pure: no clock, no I/O.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/protocol/suspension.h"
#include "runtime/net/store/program_state.h"

namespace distrun::engine {

struct WatchdogOptions {
  int rank = 0;
  std::vector<std::string> hosts;  // by world rank
  Duration warning{};              // 0: off
  Duration shutdown{};             // 0: off
  Duration path_check{};           // for LongWait; 0: off
  Duration deadlock{};             // 0: off
};

// The work that has been in flight longest on this rank.
struct OldestWork {
  std::string what;      // "allreduce 'x'"
  std::string tensor{};  // "x"; empty: the work has none
  TimePoint since;
  bool running = false;     // all ranks agreed on it; its data moves or should move
  bool on_gpu = false;      // it is in the GPU's queue, perhaps after the program's own work
  bool with_leader = true;  // the leader is in its process set
};

class Watchdog {
 public:
  static constexpr Duration kAnswerTime = std::chrono::seconds(1);

  explicit Watchdog(WatchdogOptions options);

  struct Actions {
    std::vector<int> ping;    // ranks to ask
    bool overdue = false;     // for the ping: the oldest work is past the limit
    bool waits_only = false;  // but it only waits: the coordinator ends it, or it may wait (a join, a shutdown)
    std::vector<std::string> warnings;
    std::optional<net::RankWait> wait{};  // a wait that a warning reports for the first time
    Status abort;
    bool deadlock = false;  // `abort` is that of a deadlock
  };
  // Due at next(), and after answered().
  Actions check(const std::optional<OldestWork>& in_flight, TimePoint now);
  [[nodiscard]] std::optional<TimePoint> next(const std::optional<OldestWork>& work) const;

  void answered(int rank);
  // On a member, call this before answered(): the leader itself warns of a long-running operation. If the leader is not
  // in an operation's process set, it warns of another operation.
  void leader_warns() { leader_warns_ = true; }
  // On the leader, for its answer to a member.
  [[nodiscard]] bool warns_itself(const std::optional<OldestWork>& in_flight, TimePoint now) const;
  // On the leader: a member asked, so its work is late. The leader then checks which other ranks are silent.
  // kOverdue: the member is past the limit. A silent rank then ends the job, even if nothing here waits for it.
  // kWaitsOnly: the member's work only waits. Then only a rank that is silent for the whole limit ends the job.
  enum class Asked { kAlive, kOverdue, kWaitsOnly };
  void asked(TimePoint now, Asked why = Asked::kAlive);
  // The coordinator wants to end the job with `why`. The watchdog first finds ranks that do not answer, and names those
  // as the cause. `deadlock`: all ranks wait for one another.
  void end(const Status& why, bool deadlock = false);
  // This rank's own loop was suspended. The time limits leave that time out.
  void suspended(const Suspension& gap);
  // No rank waits for this rank any more, unless it is the leader.
  void left(int rank);

 private:
  using Work = std::optional<OldestWork>;
  [[nodiscard]] Work counted(Work work) const;
  [[nodiscard]] std::optional<TimePoint> next_question(const OldestWork& work) const;
  Actions ask(const std::optional<OldestWork>& work, TimePoint now);
  [[nodiscard]] Status judge(const std::optional<OldestWork>& work, TimePoint now);
  [[nodiscard]] std::string silence_text(TimePoint now) const;
  [[nodiscard]] std::vector<int> given_up(TimePoint now) const;
  [[nodiscard]] bool over(const std::optional<OldestWork>& work, TimePoint now) const;
  Actions conclude(const std::optional<OldestWork>& work, TimePoint now);
  [[nodiscard]] std::string warning_text(const std::optional<OldestWork>& work, TimePoint now) const;
  bool due(const std::optional<OldestWork>& work, TimePoint now);
  [[nodiscard]] Duration silence(TimePoint now) const;

  const WatchdogOptions options_;
  std::vector<int> peers_;  // the ranks that this rank can ask: the leader asks all others, the others ask the leader
  std::vector<int> silent_;
  std::map<int, TimePoint> silent_since_;  // by rank: time of the first question that it has not answered
  std::vector<Suspension> gaps_;           // in order, since this rank last had nothing in flight
  std::optional<TimePoint> asked_at_;
  TimePoint last_{};  // time of the last question
  TimePoint warned_{};
  std::string warned_of_;      // the operation in the last warning
  std::string oldest_;         // the oldest work at the last question
  TimePoint oldest_at_{};      // time of the question since when it is the oldest
  std::vector<int> named_;     // silent ranks that warnings about running work have named
  bool leader_warns_ = false;  // the leader said so in its last answer
  bool wanted_ = false;
  bool asked_overdue_ = false;
  bool asked_waiting_ = false;
  int answered_overdue_ = 0;  // member: how often the leader answered past the limit without ending the job
  Status ending_;             // the coordinator's error
  bool ends_deadlock_ = false;
};

}  // namespace distrun::engine
