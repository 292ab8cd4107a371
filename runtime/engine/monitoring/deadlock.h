// Finds deadlocks: all ranks wait for one another for ever. While the leader's own work waits, it repeatedly asks every
// rank how it waits. It judges the answers over the whole time limit. A rank that does not answer is no deadlock; the
// watchdog names such ranks. Pure: no clock, no I/O.
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
  // CPU time that a process may use per minute and still count as waiting.
  static constexpr Duration kIdleCpu = std::chrono::seconds(1);

  // `limit` 0: off.
  DeadlockWatch(int ranks, Duration limit);

  // When the ranks must be asked next. `since`: since when the leader's own work waits. Empty: it has none, or the work
  // runs.
  [[nodiscard]] std::optional<TimePoint> next(const std::optional<TimePoint>& since) const;
  // Returns the number of a question that is due now.
  std::optional<std::uint64_t> ask(const std::optional<TimePoint>& since, TimePoint now);
  // True: for `limit` no rank has been able to continue.
  bool take_answer(int rank, const message::WaitAnswer& answer);
  // Drops all that was seen, for instance because this process was suspended.
  void forget();
  // By rank: the operation of its last answer. Empty: it waited in none.
  [[nodiscard]] std::vector<std::string> operations() const;

 private:
  struct Round {
    TimePoint at;
    std::vector<std::int64_t> cpu_ns;  // by rank
  };
  bool judge();
  [[nodiscard]] bool idle() const;

  const Duration limit_;
  const Duration pause_;                       // between two questions
  const Duration window_;                      // over this time the CPU time is compared
  std::vector<message::WaitAnswer> answered_;  // by rank: the last answer
  std::vector<std::uint64_t> before_;          // by rank: `changes` in the previous round
  std::uint64_t round_ = 0;
  std::size_t answers_ = 0;  // number of answers to it
  std::optional<TimePoint> asked_at_;
  std::optional<TimePoint> since_;  // since then all ranks wait and nothing changes
  std::deque<Round> rounds_;        // since then
};

// The error that ends the job. It names all ranks, since none of them is the cause alone. `operations`: by rank, the
// operation that it waits in.
ErrorInfo deadlock_error(const std::vector<net::RankWait>& waits, const std::vector<std::string>& operations,
                         const std::vector<std::string>& hosts, Duration limit);

}  // namespace distrun::engine
