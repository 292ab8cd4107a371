// Where ranks are when they wait for each other: whom to ask, for how long, and what is known at the end of the job.
// Pure: the owner of the connections asks the ranks and brings the answers.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/report/hang_report.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class HangWatch {
 public:
  // No rank is waited for longer.
  static constexpr Duration kAnswerTime = std::chrono::seconds(2);

  // This rank says who waits for long, and with an empty list that what it said is over. Returns whom to ask where they
  // are: each wait is looked at once.
  std::vector<int> waits(int reporter, const std::vector<net::RankWait>& waits, TimePoint now);
  // The user asks for these; returns whom to ask.
  std::vector<int> look_at(const std::vector<int>& ranks, TimePoint now);

  // Once: before the job ends for its limit of time.
  bool is_last_look() { return !std::exchange(looked_last_, true); }
  [[nodiscard]] bool looks_last() const { return looked_last_; }

  void answered(int rank, const net::ProgramState& state);
  // It will not answer; `why` is as RankView::note.
  void cannot(int rank, const std::string& why);
  // Once, when all have answered or the time is over. `states`: of the ranks' processes, where they are known.
  std::optional<std::vector<RankView>> take(TimePoint now, const std::map<int, char>& states);
  [[nodiscard]] std::optional<TimePoint> deadline() const;

  // For the report of the job.
  [[nodiscard]] const HangFacts& facts() const { return facts_; }

 private:
  void begin(const std::vector<int>& ranks, TimePoint now);
  void keep(const std::vector<RankView>& views);

  void forget(int reporter);

  HangFacts facts_;
  std::vector<int> reporters_;  // of each of the waits
  std::set<int> missed_;
  bool looked_last_ = false;
  bool by_user_ = false;           // the round that is open, not a wait's
  std::set<int> open_;             // of the round, not answered yet
  std::map<int, RankView> views_;  // of the round
  std::optional<TimePoint> until_;
};

}  // namespace distrun::launcher
