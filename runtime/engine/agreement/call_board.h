// Calls that ranks make together (process sets, timeline): all ranks, or only the members of a process set. A rank's
// calls are taken one at a time, in the rank's own order. Its next call counts only when the one before has ended.
// Ranks that share calls must therefore make them in the same order. Calls that wait for one another in a circle can
// never end. An unordered call (Call::unordered) is not part of that order: it ends when all its takers have made it.
// Pure: no clock, no I/O.
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
        failed_elsewhere_(static_cast<std::size_t>(world_size)) {}

  // `takers`: the ranks that make the call together, ascending; empty: all ranks. `refused`: why this rank could not do
  // its part. It becomes the result on every rank.
  void add(int rank, Call call, std::vector<int> takers, TimePoint now, const Status& refused = {});

  struct Next {
    std::uint64_t number = 0;  // for end(); 0: the call has already ended, with `refused`
    Call call;
    std::vector<int> ranks;  // ranks that get the result, ascending; empty: all
    Status refused;          // the reason of the refusal, or kMismatch that names the odd ranks
  };
  // Returns a call that all its takers have made, or one that fails.
  std::optional<Next> take(const std::vector<std::string>& hosts);
  // The result of a taken call is known, so the next calls of its ranks count.
  void end(std::uint64_t number);

  // Calls that wait for ranks which are in no call at all. The list leaves out unordered removals of sets, because no
  // rank waits for them.
  struct Waiting {
    std::uint64_t number = 0;  // for note_reported() and refuse()
    bool unordered = false;    // refuse() ignores it
    std::string what;
    std::vector<int> made;  // ranks that wait
    std::vector<int> missing;
    TimePoint since;
    TimePoint counts;    // since when the others can be late, because no earlier call delays them
    TimePoint reported;  // time of the last report; equals `counts` if there was none
  };
  [[nodiscard]] std::vector<Waiting> waiting() const;
  // Notes that the wait of this call has been reported.
  void note_reported(std::uint64_t number, TimePoint now);
  // The call fails on all ranks that have made it, and on the others when they make it.
  void refuse(std::uint64_t number, const Status& why);
  void suspended(const Suspension& gap);

 private:
  struct Queued {
    Call call;
    std::vector<int> takers;
    TimePoint when;
    Status refused;
  };
  struct Open {  // a call that some ranks have made
    std::uint64_t number = 0;
    Call call;
    std::vector<int> takers;
    std::vector<int> made;  // ranks, in the order of arrival
    TimePoint since;
    TimePoint counts;
    TimePoint reported;
    Status refused;
    bool taken = false;
  };
  struct FailedCall {  // a call that has failed, and that a rank has not made yet
    Call call;
    std::vector<int> failed;  // the ranks on which it has failed, ascending
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
  bool take_failed(int rank, const Queued& next);
  void fail_circle(const Calls& calls, const std::vector<std::string>& hosts);
  void fail(const Calls& calls, const Status& why);
  void close(std::vector<std::uint64_t> numbers);

  const int world_size_;
  std::vector<std::deque<Queued>> queued_;                 // by rank: calls after the current one
  std::vector<Open*> current_;                             // by rank; null: in no call
  std::vector<std::vector<FailedCall>> failed_elsewhere_;  // by rank
  std::list<Open> open_;                                   // in the order of arrival
  std::list<Open> unordered_;  // in the order of arrival; each rank's own order separates equal ones
  std::deque<Next> ready_;
  std::size_t idle_ = static_cast<std::size_t>(world_size_);  // ranks in no call
  std::uint64_t next_number_ = 1;
  TimePoint latest_{};    // when the last call arrived, from which time later calls count
  bool changed_ = false;  // a call has arrived since the last search for circles
};

std::string describe(const Call& call);  // "adding a process set of ranks 0, 1"

}  // namespace distrun::engine
