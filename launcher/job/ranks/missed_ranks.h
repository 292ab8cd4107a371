// Finds out who is to blame when ranks miss each other. Ranks report which ranks they miss and why. The agents report
// which processes run, and try the paths between their hosts. Nothing is decided before the agents on both sides have
// answered once more, because a lost host explains more than any report of a rank. A rank is never blamed for its own
// report. Pure.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/ranks/blame.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class MissedRanks {
 public:
  // How long agents have to answer.
  static constexpr Duration kAnswerTime = std::chrono::seconds(2);
  // How long to wait for other ranks that report the same.
  static constexpr Duration kGather = std::chrono::milliseconds(300);
  // How long to wait for a better explanation of a closed connection. The news of the peer's death comes on another
  // way.
  static constexpr Duration kExplain = std::chrono::seconds(1);
  // A finding that must be seen twice is checked again after this time.
  static constexpr Duration kAgain = std::chrono::milliseconds(500);

  MissedRanks() = default;
  // `evidence` without states, reports and paths.
  explicit MissedRanks(Evidence evidence) : evidence_(std::move(evidence)) {
    evidence_.states.resize(evidence_.host_of.size(), '?');
  }

  // --- events ---
  void reported(MissReport report, TimePoint now);
  // An agent has answered the last question. `states`: pairs of rank and state.
  void answered(int host, const std::vector<std::pair<int, char>>& states);
  // The agents have tried all paths; `broken` are those that failed.
  void tried(std::vector<BrokenPath> broken);
  // The connection of this rank to the launcher has ended and its exit is not known yet. Not `awaited`: the exit is
  // known, or the rank still runs.
  void awaits_exit(int rank, bool awaited);
  // Ranks that others wait for handle these exceptions. `more`: some ranks have been asked and have not answered yet.
  void seen(std::vector<PendingException> exceptions, bool more);

  // --- what is due ---
  struct Step {
    bool ask = false;        // ask all agents for the states of their ranks, each time
    bool try_paths = false;  // ask the agents to try the paths between hosts
    std::set<int> silent;    // hosts of missed and reporting ranks that have not answered; set once
    bool no_cause = false;   // the reports name no cause
    std::optional<Blame> blame;
  };
  // After `no_cause` or `blame` it is ready for new reports.
  Step step(TimePoint now);
  // No process is left that could report more: the result of what is known.
  Step conclude();
  // When step() is due without another event. A time in the past: now.
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  // True if a report has not been decided.
  [[nodiscard]] bool pending() const { return !evidence_.reports.empty(); }
  // The time limit for an agent to try a path.
  [[nodiscard]] Duration path_limit() const;

 private:
  [[nodiscard]] bool ends() const { return ended_at_.has_value(); }
  [[nodiscard]] bool several_hosts() const;
  [[nodiscard]] bool all_answered() const;
  [[nodiscard]] bool waits_for_exit() const;
  [[nodiscard]] bool waits_for_views() const;
  [[nodiscard]] bool needs_second_check() const;
  [[nodiscard]] TimePoint decided_at() const;
  [[nodiscard]] std::set<int> concerned() const;  // hosts
  void ask_again(TimePoint now);
  void reset();

  Evidence evidence_;
  std::optional<TimePoint> ended_at_;  // time of the first report that ends a session
  std::optional<TimePoint> asked_at_;
  int rounds_ = 0;          // number of questions
  std::set<int> answered_;  // hosts that have answered in this round
  bool answers_over_ = false;
  bool silence_reported_ = false;
  std::set<int> awaited_;  // ranks whose exit is awaited
  bool views_come_ = false;
  std::optional<TimePoint> trying_since_;
  std::optional<TimePoint> ignored_until_;  // reports of waits are ignored until then
  bool tried_ = false;
};

}  // namespace distrun::launcher
