#include "launcher/agent/ending.h"

#include <algorithm>
#include <utility>

#include "launcher/spawn/poller.h"

namespace distrun::launcher {
namespace {
// Helpers of Python programs end a moment after them; that is not worth a word.
constexpr Duration kQuietly = std::chrono::seconds(1);
// After TERM, what a successful job left behind gets this long at most.
constexpr Duration kTermOfRest = std::chrono::seconds(2);
// A process in an uninterruptible system call does not die of KILL; after this long it is named and left.
constexpr Duration kUnkillable = std::chrono::seconds(5);
// While killing, newly forked processes are looked for this often, besides at each child's end.
constexpr Duration kSweep = std::chrono::milliseconds(50);
}  // namespace

void Ending::stop(const Stop& order, TimePoint now) {
  ordered_ = true;
  term_now_.insert(order.term_now.begin(), order.term_now.end());
  term_at_ = earlier(term_at_, now + std::chrono::milliseconds(order.term_after));
  kill_at_ = earlier(kill_at_, now + std::chrono::milliseconds(order.kill_after));
}

void Ending::kill_now(TimePoint now) {
  ordered_ = true;
  kill_at_ = earlier(kill_at_, now);
}

// All ranks have ended, but something they started has not.
void Ending::leftovers(const View& view, Actions& out) {
  if (!kill_at_) {
    // The job ended by itself: what is left may be writing a file, so it gets the grace period first.
    tell_at_ = view.now + std::min(grace_, kQuietly);
    term_at_ = view.now + grace_;
    kill_at_ = *term_at_ + std::min(grace_, kTermOfRest);
  }
  if (tell_at_ && view.now >= *tell_at_ && !std::exchange(reported_, true)) out.left_behind = true;
  // In a job that is being ended there is nothing to wait for.
  const bool term = !tell_at_ || view.now >= *term_at_;
  if (term && !std::exchange(termed_rest_, true)) out.term_rest = true;
}

Ending::Actions Ending::next(const View& view) {
  Actions out;
  wake_.reset();
  if (!view.any_child) {
    out.done = view.started || kill_at_.has_value();
    return out;
  }
  if (view.carriers_only && !view.ranks_alive && !ordered_) {
    // What was left behind has ended in time: its end was near, not that of the other hosts.
    term_at_ = kill_at_ = tell_at_ = std::nullopt;
    termed_rest_ = false;
    return out;
  }
  if (view.started && !view.ranks_alive) leftovers(view, out);
  if (view.ranks_alive) {
    out.term_ranks = std::exchange(term_now_, {});
    if (term_at_ && view.now >= *term_at_ && !termed_all_) {
      termed_all_ = true;
      out.term_all_ranks = true;
    }
  }
  if (kill_at_ && view.now >= *kill_at_) {
    if (!give_up_at_) give_up_at_ = view.now + kUnkillable;
    out.kill_all = true;
    out.give_up = view.now >= *give_up_at_;
    wake_ = view.now + kSweep;
    return out;
  }
  wake_ = kill_at_;
  if (term_at_ && view.now < *term_at_) wake_ = earlier(wake_, term_at_);
  if (tell_at_ && view.now < *tell_at_) wake_ = earlier(wake_, tell_at_);
  return out;
}

}  // namespace distrun::launcher
