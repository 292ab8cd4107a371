// Who is to blame when ranks miss each other. Ranks report whom they miss and why; the agents say which processes run,
// and try the paths between their hosts. Nothing is decided before both agents have been heard once more: a host that
// is gone explains more than any rank can say. The rank that reports is never blamed for that. Pure.
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
  // How long other ranks have to report the same.
  static constexpr Duration kGather = std::chrono::milliseconds(300);
  // How long a better explanation may take for a connection that was closed: the peer's death comes another way.
  static constexpr Duration kExplain = std::chrono::seconds(1);
  // What is read twice to be believed is read after this time.
  static constexpr Duration kAgain = std::chrono::milliseconds(500);

  MissedRanks() = default;
  // Without states, reports and paths.
  explicit MissedRanks(Evidence evidence) : evidence_(std::move(evidence)) {
    evidence_.states.resize(evidence_.host_of.size(), '?');
  }

  // --- events ---
  void reported(MissReport report, TimePoint now);
  // An agent has answered the last question; `states`: by rank.
  void answered(int host, const std::vector<std::pair<int, char>>& states);
  // The agents have tried all paths; those that are broken.
  void tried(std::vector<BrokenPath> broken);
  // The connection of this rank to the launcher has ended, and its exit is not known yet; or it is, or it runs on.
  void awaits_exit(int rank, bool awaited);

  // --- what is due ---
  struct Step {
    bool ask = false;        // all agents for the states of their ranks; again each time
    bool try_paths = false;  // let the agents try the paths between hosts
    std::set<int> silent;    // hosts of missed ranks and of reporters that have not answered; once
    bool no_cause = false;   // the reports have no cause
    std::optional<Blame> blame;
  };
  // After `no_cause` or `blame` it is ready for the next reports.
  Step step(TimePoint now);
  // No process runs any more that could tell more: what follows from what is known.
  Step conclude();
  // When step() has something to do without another event; a time in the past when it is now.
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  // Something was reported and is not decided.
  [[nodiscard]] bool pending() const { return !evidence_.reports.empty(); }
  // How long an agent may try a path.
  [[nodiscard]] Duration path_limit() const;

 private:
  [[nodiscard]] bool ends() const { return ended_at_.has_value(); }
  [[nodiscard]] bool several_hosts() const;
  [[nodiscard]] bool all_answered() const;
  [[nodiscard]] bool waits_for_exit() const;
  [[nodiscard]] bool needs_second_look() const;
  [[nodiscard]] TimePoint settled_at() const;
  [[nodiscard]] std::set<int> concerned() const;  // hosts
  void ask_again(TimePoint now);
  void reset();

  Evidence evidence_;
  std::optional<TimePoint> ended_at_;  // the first report that ends a session
  std::optional<TimePoint> asked_at_;
  int rounds_ = 0;          // of questions
  std::set<int> answered_;  // hosts, in this round
  bool answers_over_ = false;
  bool silence_told_ = false;
  std::set<int> awaited_;  // ranks whose exit is
  std::optional<TimePoint> trying_since_;
  std::optional<TimePoint> rests_until_;  // reports of waits are not news before
  bool tried_ = false;
};

}  // namespace distrun::launcher
