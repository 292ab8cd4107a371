// Do all ranks wait for one another for ever? The leader asks every rank how it waits, again and again while its own
// work waits, and judges the answers: what each rank says of itself at several moments, over the whole limit. A rank
// that does not answer is no deadlock: the watchdog names it. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/protocol/messages.h"
#include "runtime/net/store/program_state.h"

namespace distrun::engine {

class DeadlockWatch {
 public:
  // Of what a process may use in a minute and still wait.
  static constexpr Duration kIdleCpu = std::chrono::seconds(1);

  // `limit` 0: off.
  DeadlockWatch(int ranks, Duration limit);

  // When the ranks are to be asked; `since`: the leader's own work waits since then; none: it has none, or that runs.
  [[nodiscard]] std::optional<TimePoint> next(const std::optional<TimePoint>& since) const;
  // The number of a question that is due now.
  std::optional<std::uint64_t> ask(const std::optional<TimePoint>& since, TimePoint now);
  // True: since `limit` no rank could go on.
  bool told(int rank, const message::WaitTold& said);
  // What was seen counts no more: this process has stood still.
  void forget();
  // By rank, what it said last that it waits in; empty: in nothing.
  [[nodiscard]] std::vector<std::string> operations() const;

 private:
  struct Round {
    TimePoint at;
    std::vector<std::int64_t> cpu_ns;  // by rank
  };
  bool judge();
  [[nodiscard]] bool idle() const;

  const Duration limit_;
  const Duration pause_;                 // between questions
  const Duration window_;                // over which the processor's time is looked at
  std::vector<message::WaitTold> said_;  // by rank, last
  std::vector<std::uint64_t> before_;    // by rank: `changes` in the round before
  std::uint64_t round_ = 0;
  std::size_t answers_ = 0;  // to it
  std::optional<TimePoint> asked_at_;
  std::optional<TimePoint> since_;  // all ranks have stood still
  std::deque<Round> rounds_;        // since then
};

// The error that ends the job. `operations`: by rank, what each says that it waits in.
ErrorInfo deadlock_error(const std::vector<net::RankWait>& waits, const std::vector<std::string>& operations,
                         const std::vector<std::string>& hosts, Duration limit);

}  // namespace distrun::engine
