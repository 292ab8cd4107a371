// Calls that ranks make together (process sets, timeline): of all ranks, or of a process set's members alone. A rank's
// calls are taken in the order in which it makes them, one at a time: its next one counts when the one before has
// ended. So ranks that share calls must make them in the same order, and calls that wait for one another in a circle
// can never end. An unordered call (Call::unordered) is in no such order: it ends when all who take part have made it.
// Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/protocol/messages.h"
#include "runtime/engine/protocol/suspension.h"

namespace distrun::engine {

class CallBoard {
 public:
  explicit CallBoard(int world_size)
      : world_size_(world_size),
        queued_(static_cast<std::size_t>(world_size)),
        current_(static_cast<std::size_t>(world_size)),
        owed_(static_cast<std::size_t>(world_size)) {}

  // `takers`: who makes it together, ascending; empty: all ranks. `refused`: this rank could not do its part, which
  // makes it everybody's outcome.
  void add(int rank, Call call, std::vector<int> takers, TimePoint now, const Status& refused = {});

  struct Next {
    std::uint64_t number = 0;  // for end(); 0: it has ended, with `refused`
    Call call;
    std::vector<int> ranks;  // whom the outcome goes to, ascending; empty: all
    Status refused;          // kMismatch naming the odd ranks, or what refused it
  };
  // A call that all who take part have made, or one that fails.
  std::optional<Next> take(const std::vector<std::string>& hosts);
  // The outcome of one that was taken is known: the next calls of its ranks count.
  void end(std::uint64_t number);

  // Calls that wait for ranks which are in no call at all. A set that goes when its members have dropped it holds up
  // nobody.
  struct Waiting {
    std::uint64_t number = 0;  // for note_reported() and refuse()
    bool unordered = false;    // refuse() does not know of it
    std::string what;
    std::vector<int> made;  // who waits
    std::vector<int> missing;
    TimePoint since;
    TimePoint counts;    // since when the others can be late: no call before it has held them up
    TimePoint reported;  // at last; `counts` if it has not been
  };
  [[nodiscard]] std::vector<Waiting> waiting() const;
  // That it waits has been reported.
  void note_reported(std::uint64_t number, TimePoint now);
  // It fails on all who have made it, and on the others when they do.
  void refuse(std::uint64_t number, const Status& why);
  void suspended(const Suspension& gap);

 private:
  struct Queued {
    Call call;
    std::vector<int> takers;
    TimePoint when;
    Status refused;
  };
  struct Open {  // one call that some ranks are in
    std::uint64_t number = 0;
    Call call;
    std::vector<int> takers;
    std::vector<int> made;  // ranks, as they came
    TimePoint since;
    TimePoint counts;
    TimePoint reported;
    Status refused;
    bool taken = false;
  };
  struct Debt {  // a call that has failed and that a rank had not made yet
    Call call;
    std::vector<int> failed;  // the ranks it has failed on, ascending
    Status why;
  };
  using Calls = std::vector<const Open*>;

  [[nodiscard]] static Waiting waiting_for(const Open& open);
  [[nodiscard]] std::size_t takers_of(const Open& open) const;
  [[nodiscard]] Calls waits_for(const Open& open) const;
  [[nodiscard]] Calls circle() const;
  [[nodiscard]] Calls circle_through(const Open& start) const;
  [[nodiscard]] bool all_differ() const;
  void add_unordered(int rank, Call call, std::vector<int> takers, TimePoint now);
  void advance(int rank);
  bool settle(int rank, const Queued& next);
  void fail_circle(const Calls& calls, const std::vector<std::string>& hosts);
  void fail(const Calls& calls, const Status& why);
  void close(std::vector<std::uint64_t> numbers);

  const int world_size_;
  std::vector<std::deque<Queued>> queued_;  // by rank: behind the current one
  std::vector<Open*> current_;              // by rank; null: in no call
  std::vector<std::vector<Debt>> owed_;     // by rank
  std::list<Open> open_;                    // as they came
  std::list<Open> unordered_;               // as they came; each rank's order tells equal ones from each other
  std::deque<Next> ready_;
  std::size_t idle_ = static_cast<std::size_t>(world_size_);  // ranks in no call
  std::uint64_t next_number_ = 1;
  TimePoint latest_{};    // when a call came last, which lets those behind it count
  bool changed_ = false;  // since circles were looked for
};

std::string describe(const Call& call);  // "adding a process set of ranks 0, 1"

}  // namespace distrun::engine
