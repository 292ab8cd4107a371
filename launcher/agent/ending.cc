#include "launcher/agent/ending.h"

#include <algorithm>
#include <utility>

#include "launcher/spawn/poller.h"

namespace distrun::launcher {
namespace {
// Helper processes that a Python program has started end within this time after it. The user gets no message about
// them.
constexpr Duration kQuietly = std::chrono::seconds(1);
// After TERM, leftover processes of a successful job get at most this time.
constexpr Duration kTermOfLeftovers = std::chrono::seconds(2);
// KILL does not end a process in an uninterruptible system call. After this time the agent names it and leaves it.
constexpr Duration kUnkillable = std::chrono::seconds(5);
// While it kills, the agent looks for newly forked processes at this interval, and at each child's end.
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

// All ranks have ended, but some process that they started has not.
void Ending::leftovers(const View& view, Actions& out) {
  if (!kill_at_) {
    // The job ended by itself. A leftover process may still be writing a file, so it gets the grace period first.
    report_at_ = view.now + std::min(grace_, kQuietly);
    term_at_ = view.now + grace_;
    kill_at_ = *term_at_ + std::min(grace_, kTermOfLeftovers);
  }
  if (report_at_ && view.now >= *report_at_ && !std::exchange(reported_, true)) out.left_behind = true;
  // If the job is being ended, leftover processes get TERM at once.
  const bool term = !report_at_ || view.now >= *term_at_;
  if (term && !std::exchange(leftovers_termed_, true)) out.term_leftovers = true;
}

Ending::Actions Ending::next(const View& view) {
  Actions out;
  wake_.reset();
  if (!view.any_child) {
    out.done = view.started || kill_at_.has_value();
    return out;
  }
  if (view.carriers_only && !view.ranks_alive && !ordered_) {
    // The leftover processes have ended in time. The deadlines were for them, not for the ssh processes that carry
    // other hosts' agents.
    term_at_ = kill_at_ = report_at_ = std::nullopt;
    leftovers_termed_ = false;
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
  if (report_at_ && view.now < *report_at_) wake_ = earlier(wake_, report_at_);
  return out;
}

}  // namespace distrun::launcher
