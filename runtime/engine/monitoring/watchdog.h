// Is everybody still there? The coordinator names ranks that have not submitted a tensor; this finds ranks that do not
// answer at all (stopped, swapped out, unreachable), also while data moves and also if it is the leader. It asks only
// after something has been in flight for the stall warning time, or for the stall shutdown time where that is shorter
// or the warning is off, so an idle job sends nothing. It asks evenly, and tells what it finds ever less often. Pure.
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
  Duration path_check{};           // of LongWait; 0: off
  Duration deadlock{};             // 0: off
};

// What has been in flight longest on this rank.
struct OldestWork {
  std::string what;  // "allreduce 'x'"
  TimePoint since;
  bool running = false;     // agreed on, and its data moves (or does not)
  bool on_gpu = false;      // it is in the GPU's queue, perhaps behind what the program computes
  bool with_leader = true;  // the leader is in its process set
};

class Watchdog {
 public:
  static constexpr Duration kAnswerTime = std::chrono::seconds(1);

  explicit Watchdog(WatchdogOptions options);

  struct Actions {
    std::vector<int> ping;  // ranks to ask
    bool overdue = false;   // of the ping: the oldest work is past the limit
    bool patient = false;   // but only waits: it is the coordinator's to end, or may wait (a join, a shutdown)
    std::vector<std::string> warnings;
    std::optional<net::RankWait> wait{};  // what a warning tells for the first time
    Status abort;
  };
  // Due at next(), and after answered().
  Actions check(const std::optional<OldestWork>& in_flight, TimePoint now);
  [[nodiscard]] std::optional<TimePoint> next(const std::optional<OldestWork>& work) const;

  void answered(int rank);
  // At a member, before answered(): the leader itself warns of an operation that runs for too long. One that it is not
  // in is another.
  void leader_warns() { leader_warns_ = true; }
  // At the leader, for its answer to a member.
  [[nodiscard]] bool warns_itself(const std::optional<OldestWork>& in_flight, TimePoint now) const;
  // At the leader: a member asked, so it misses something; look who else is silent. `why`: it is past the limit, so
  // that a silent rank ends the job although nothing here may be waiting for it; if what it misses only waits, one that
  // is silent for the whole limit.
  enum class Asked { kAlive, kOverdue, kPatient };
  void asked(TimePoint now, Asked why = Asked::kAlive);
  // The coordinator ends the job with `why`: see first who does not answer, and then end it naming those.
  void end(const Status& why);
  // This rank's own loop. Warnings still say by the clock how long something has been in flight.
  void suspended(const Suspension& gap);
  // Nobody waits for this rank any more, unless it is the leader.
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
  std::vector<int> peers_;  // whom this rank can ask: the leader all others, the others the leader
  std::vector<int> silent_;
  std::map<int, TimePoint> silent_since_;  // by rank: the first question that it has not answered
  std::vector<Suspension> gaps_;           // in order, since something has been in flight without a pause
  std::optional<TimePoint> asked_at_;
  TimePoint last_{};  // question
  TimePoint warned_{};
  std::string warned_of_;      // what ran
  std::string oldest_;         // at the last question
  TimePoint oldest_at_{};      // since this question
  std::vector<int> named_;     // silent ranks in the warnings about what runs
  bool leader_warns_ = false;  // so it said in its answer to the last question
  bool wanted_ = false;
  bool asked_overdue_ = false;
  bool asked_patient_ = false;
  int answered_overdue_ = 0;  // at a member: times that the leader answered past the limit and let things be
  Status ending_;             // the coordinator's
};

}  // namespace distrun::engine
