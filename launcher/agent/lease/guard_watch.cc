#include "launcher/agent/lease/guard_watch.h"

#include "launcher/spawn/poller.h"

namespace distrun::launcher {

GuardWatch::Actions GuardWatch::next(TimePoint now, BootTime boot, std::optional<BootTime> lease_end) {
  if (kill_at_ && now > *kill_at_ + kSuspended) {
    if (gone_at_) gone_at_ = now;
    if (stopped_at_) stopped_at_ = now;
  }
  kill_at_.reset();
  if (gone_at_) kill_at_ = *gone_at_ + kTimeLimit;
  if (stopped_at_ && !lease_end) kill_at_ = earlier(kill_at_, *stopped_at_ + kStopped);
  Actions out{.end_ranks = lease_end && boot >= *lease_end + kTurn};
  if (out.end_ranks && !over_since_) over_since_ = boot;
  const bool late = out.end_ranks && boot >= *over_since_ + (stopped_at_ ? kTurn : kLastWords);
  if (!killed_ && (late || (kill_at_ && now >= *kill_at_))) out.kill_agent = killed_ = true;
  wake_.reset();
  if (out.end_ranks) {
    wake_ = now + kSweep;
  } else if (!killed_) {
    wake_ = kill_at_;
  }
  return out;
}

}  // namespace distrun::launcher
