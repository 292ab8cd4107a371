#include "runtime/engine/watchdog.h"

#include <algorithm>
#include <utility>

#include "runtime/engine/mismatch.h"
#include "runtime/engine/stall.h"

namespace distrun::engine {

Watchdog::Watchdog(WatchdogOptions options) : options_(std::move(options)) {
  const int size = static_cast<int>(options_.hosts.size());
  if (options_.rank != 0) peers_ = {0};
  for (int rank = 1; options_.rank == 0 && rank < size; ++rank) peers_.push_back(rank);
}

void Watchdog::answered(int rank) { std::erase(silent_, rank); }

void Watchdog::asked(TimePoint now) { wanted_ = now - last_ >= kAnswerTime; }

std::optional<TimePoint> Watchdog::next_question(const OldestWork& work) const {
  std::optional<TimePoint> next;
  if (options_.warning > Duration::zero()) next = std::max(last_, work.since) + options_.warning;
  const TimePoint limit = work.since + options_.shutdown;
  if (options_.shutdown > Duration::zero() && last_ < limit && (!next || limit < *next)) next = limit;
  // Past the limit without an end: a leader that answers decides, and is asked again as long as this lasts.
  if (!next && options_.shutdown > Duration::zero()) next = last_ + options_.shutdown;
  return next;
}

std::optional<TimePoint> Watchdog::next(const std::optional<OldestWork>& work) const {
  if (asked_at_) return *asked_at_ + kAnswerTime;
  if (wanted_) return TimePoint::min();
  return work ? next_question(*work) : std::nullopt;
}

Watchdog::Actions Watchdog::check(const std::optional<OldestWork>& work, TimePoint now) {
  if (asked_at_) return now >= *asked_at_ + kAnswerTime ? conclude(work, now) : Actions{};
  const auto question = work ? next_question(*work) : std::nullopt;
  return wanted_ || (question && *question <= now) ? ask(now) : Actions{};
}

Watchdog::Actions Watchdog::ask(TimePoint now) {
  wanted_ = false;
  last_ = now;
  asked_at_ = now;
  silent_ = peers_;
  return {.ping = peers_};
}

Watchdog::Actions Watchdog::conclude(const std::optional<OldestWork>& work, TimePoint now) {
  asked_at_.reset();
  Actions actions;
  const std::string silence = silent_.empty() ? ""
                                              : describe_ranks(silent_, options_.hosts) + " did not answer for " +
                                                    seconds_text(kAnswerTime) + " (stopped, overloaded or unreachable)";
  const bool stuck = work && work->running;
  if (stuck) {
    actions.warnings.push_back(work->what + " has been running for " + seconds_text(now - work->since) +
                               (silence.empty() ? "; all ranks that could be asked answer" : "; " + silence));
  } else if (!silent_.empty()) {
    actions.warnings.push_back(silence + (work ? " while " + work->what + " waits" : ""));
  }
  const bool over = work && options_.shutdown > Duration::zero() && now - work->since >= options_.shutdown;
  // What the ranks have not agreed on is the leader's to end, unless the leader is the one that is silent.
  if (!over || !(stuck || (options_.rank != 0 && !silent_.empty()))) return actions;
  ErrorInfo error{.code = Errc::kTimeout, .ranks = silent_, .cause = "stalled", .usable = false};
  if (!silent_.empty()) error.host = options_.hosts.at(static_cast<std::size_t>(silent_.front()));
  error.message = work->what + " has not completed for " + seconds_text(now - work->since) +
                  ", longer than stall_shutdown_time" + (silence.empty() ? "" : "; " + silence);
  actions.abort = Status(std::move(error));
  return actions;
}

}  // namespace distrun::engine
