// How the ranks of one host end: when TERM, when KILL, how long for what ranks leave behind. Pure: the agent tells what
// is alive and what time it is, and does what next() says.
#pragma once

#include <optional>
#include <set>

#include "launcher/protocol/messages.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class Ending {
 public:
  explicit Ending(Duration grace) : grace_(grace) {}

  // The head's orders. The earlier time wins, so a second Ctrl-C can only hurry things.
  void stop(const Stop& order, TimePoint now);
  // Everything must go at once: the head is gone.
  void kill_now(TimePoint now);

  struct View {
    bool started = false;        // ranks exist or have existed
    bool ranks_alive = false;    // some rank has not been reaped
    bool any_child = false;      // this process still has children, ranks or what they left behind
    bool carriers_only = false;  // and these do nothing but carry agents of other hosts, which end by themselves
    TimePoint now;
  };
  struct Actions {
    std::set<int> term_ranks;     // these ranks' groups
    bool term_all_ranks = false;  // all ranks' groups
    bool left_behind = false;     // tell that we wait for processes that ranks left behind
    bool term_rest = false;       // TERM for everything below us that is not a rank
    bool kill_all = false;        // KILL for everything below us; comes again until nothing is left
    bool give_up = false;         // some process cannot be killed
    bool done = false;            // nothing is left
  };
  Actions next(const View& view);
  // When next() must be called again even if nothing happens.
  [[nodiscard]] std::optional<TimePoint> deadline() const { return wake_; }
  [[nodiscard]] bool stopping() const { return kill_at_.has_value(); }
  [[nodiscard]] bool ordered() const { return ordered_; }

 private:
  void leftovers(const View& view, Actions& out);

  Duration grace_;
  std::set<int> term_now_;
  std::optional<TimePoint> term_at_;
  std::optional<TimePoint> kill_at_;
  std::optional<TimePoint> give_up_at_;
  std::optional<TimePoint> wake_;
  bool ordered_ = false;  // somebody ends the job
  bool termed_all_ = false;
  std::optional<TimePoint> tell_at_;  // set once ranks of a job that nobody stops have left something behind
  bool reported_ = false;
  bool termed_rest_ = false;
};

}  // namespace distrun::launcher
