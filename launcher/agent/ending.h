// Decides how the ranks of one host end: when they get TERM, when KILL, and how long their leftover processes may live.
// Pure: the agent passes the time and the state of the processes, and carries out the actions that next() returns.
#pragma once

#include <optional>
#include <set>

#include "launcher/protocol/messages.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class Ending {
 public:
  explicit Ending(Duration grace) : grace_(grace) {}

  // An order of the head. The earlier time wins, so a second Ctrl-C can only shorten the wait.
  void stop(const Stop& order, TimePoint now);
  // The head is gone: everything must end at once.
  void kill_now(TimePoint now);

  struct View {
    bool started = false;        // ranks exist or have existed
    bool ranks_alive = false;    // some rank has not been reaped
    bool any_child = false;      // this process has children: ranks or leftover processes of ranks
    bool carriers_only = false;  // the children only carry agents of other hosts, and end by themselves
    TimePoint now;
  };
  struct Actions {
    std::set<int> term_ranks;     // TERM for the process groups of these ranks
    bool term_all_ranks = false;  // TERM for the process groups of all ranks
    bool left_behind = false;     // tell the user that the agent waits for leftover processes of ranks
    bool term_leftovers = false;  // TERM for everything below this process except the ranks
    bool kill_all = false;        // KILL for everything below this process; set in every round until nothing is left
    bool give_up = false;         // some process cannot be killed
    bool done = false;            // nothing is left
  };
  Actions next(const View& view);
  // When the agent must call next() again even if nothing happens.
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
  bool ordered_ = false;  // the head, or another process, ends the job
  bool termed_all_ = false;
  std::optional<TimePoint> report_at_;  // set if ranks ended without an order and left processes behind
  bool reported_ = false;
  bool leftovers_termed_ = false;
};

}  // namespace distrun::launcher
