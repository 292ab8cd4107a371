#include "runtime/engine/launcher_link.h"

#include <sys/epoll.h>

#include <algorithm>
#include <new>
#include <utility>

#include "runtime/base/log.h"

namespace distrun::engine {

LauncherLink::~LauncherLink() { unwatch(); }

void LauncherLink::unwatch() {
  if (std::exchange(watched_, false)) wait_set_.remove(channel_->fd());
}

Status LauncherLink::watch(OnEvents on_events) {
  if (channel_ == nullptr) return {};
  DISTRUN_RETURN_IF_ERROR(
      wait_set_.add(channel_->fd(), EPOLLIN, [this, on_events = std::move(on_events)](std::uint32_t) {
        auto events = channel_->receive();
        // Removes the descriptor, because its end of file would be reported repeatedly. That may destroy this lambda,
        // so `on_events` is copied first.
        const OnEvents call = on_events;
        if (!events.ok()) unwatch();
        call(std::move(events));
      }));
  watched_ = true;
  return {};
}

void LauncherLink::report_end(const Status& why, bool deadlock) {
  const bool left = why.code() == Errc::kRankLeft;
  if (channel_ == nullptr || why.info().ranks.empty() || !(left || why.code() == Errc::kTimeout)) return;
  const std::vector<int>& ranks = why.info().ranks;
  const net::RankFailure failure{.cause = why.message(), .tensor = why.info().tensor};
  note(left ? channel_->report_early_leave(ranks.front(), failure)
            : channel_->report_stall({.ranks = ranks, .deadlock = deadlock}, failure));
}

void LauncherLink::report_failure(const std::string& cause, const std::string& tensor) {
  if (channel_ == nullptr) return;
  try {
    note(channel_->report_failure({.cause = cause, .tensor = tensor}));
  } catch (const std::bad_alloc&) {
    // There is no memory for the report. The other ranks still get their message.
  }
}

void LauncherLink::report_loss(const Status& why, int own, bool by_other) {
  const ErrorInfo& info = why.info();
  if (channel_ == nullptr || (info.ranks.empty() && !by_other)) return;
  // The others have given this rank up, and it ends because of that. Its end is not the first cause.
  if (!by_other && !info.ranks.empty() && info.ranks.front() == own) return;
  note(channel_->report_loss({.ranks = info.ranks, .link = info.link, .by_other = by_other},
                             {.cause = info.cause, .tensor = info.tensor}));
}

void LauncherLink::report_operation(const Status& why) {
  if (channel_ != nullptr) note(channel_->report_loss({}, {.cause = why.message(), .tensor = why.info().tensor}));
}

void LauncherLink::report_no_progress(const std::string& what, const std::string& tensor) {
  if (channel_ != nullptr) note(channel_->report_no_progress({.cause = what, .tensor = tensor}));
}

void LauncherLink::report_stop(const std::string& cause) {
  if (channel_ != nullptr) note(channel_->report_stop(cause));
}

void LauncherLink::report_waits(std::vector<net::RankWait> waits) {
  if (channel_ == nullptr) return;
  waits.resize(std::min(waits.size(), net::kMaxWaits));
  note(channel_->report_waits(waits));
}

void LauncherLink::report_state(const net::ProgramState& state) {
  if (channel_ != nullptr) note(channel_->report_state(state));
}

void LauncherLink::note(const Status& reported) const {
  if (!reported.ok() && log_ != nullptr) log_->debug("cannot report to the launcher: " + reported.message());
}

}  // namespace distrun::engine
