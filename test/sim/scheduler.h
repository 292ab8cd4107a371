// One clock and one queue of events for all virtual ranks. Events at the same time run in the order in which they were
// scheduled, so a seed always gives the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "test/sim/clock.h"

namespace distrun::sim {

class Scheduler {
 public:
  Scheduler() { set_now(kStart); }

  [[nodiscard]] TimePoint now() const { return now_; }
  void at(TimePoint when, std::function<void()> what) {
    events_.push({.when = when < now_ ? now_ : when, .number = next_++, .what = std::move(what)});
  }
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

  // Returns false if no event is left.
  bool run_next() {
    if (events_.empty()) return false;
    const std::function<void()> what = std::move(const_cast<Event&>(events_.top()).what);
    now_ = events_.top().when;
    events_.pop();
    set_now(now_);
    what();
    return true;
  }

 private:
  struct Event {
    TimePoint when;
    std::uint64_t number = 0;
    std::function<void()> what;
    friend bool operator<(const Event& a, const Event& b) {  // the first event is the largest
      return a.when != b.when ? a.when > b.when : a.number > b.number;
    }
  };
  TimePoint now_ = kStart;
  std::uint64_t next_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace distrun::sim
