// Finds out where ranks are when they wait for each other: which ranks to ask, for how long, and what is known at the
// end of the job. Pure: the owner of the connections asks the ranks and passes the answers in.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/ranks/blame.h"
#include "launcher/report/hang_report.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class HangWatch {
 public:
  // The longest time to wait for a rank's answer.
  static constexpr Duration kAnswerTime = std::chrono::seconds(2);

  // `reporter` says which ranks wait for long. An empty list ends its earlier report. Returns the ranks to ask where
  // they are. Each wait is examined once.
  std::vector<int> waits(int reporter, const std::vector<net::RankWait>& waits, TimePoint now);
  // A scheduler sends SIGQUIT to the launcher and many agents at once. All these together are one request.
  static constexpr Duration kTogether = std::chrono::seconds(1);

  // The user asks where these ranks are. Returns the ranks to ask: none if this belongs to the last request.
  std::vector<int> look_at(const std::vector<int>& ranks, TimePoint now);

  // True once: the last look before the job ends because of its time limit.
  bool is_last_check() { return !std::exchange(looked_last_, true); }
  [[nodiscard]] bool looks_last() const { return looked_last_; }

  void answered(int rank, const net::ProgramState& state);
  // The rank will not answer; `why` is as in RankView::note.
  void cannot(int rank, const std::string& why);
  // Returns the views once, when all ranks have answered or the time is over. `states`: the known states of the ranks'
  // processes.
  std::optional<std::vector<RankView>> take(TimePoint now, const std::map<int, char>& states);
  [[nodiscard]] std::optional<TimePoint> deadline() const;

  // Ranks that others wait for and that handle an exception, as far as they have answered.
  [[nodiscard]] std::vector<PendingException> exceptions() const;

  // The facts for the report of the job.
  [[nodiscard]] const HangFacts& facts() const { return facts_; }

 private:
  void begin(const std::vector<int>& ranks, TimePoint now);
  void keep(const std::vector<RankView>& views);

  void forget(int reporter);

  HangFacts facts_;
  std::vector<int> reporters_;  // the reporter of each wait
  std::set<int> missed_;
  bool looked_last_ = false;
  bool by_user_ = false;           // the user asked for the open round, not a wait
  std::set<int> open_;             // ranks of the round that have not answered
  std::map<int, RankView> views_;  // answers of the round
  std::optional<TimePoint> until_;
  std::optional<TimePoint> requested_;  // by the user
};

}  // namespace distrun::launcher
