#include "runtime/engine/monitoring/failure_detector.h"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/engine/readiness/mismatch.h"
#include "runtime/engine/readiness/stall.h"

namespace distrun::engine {
namespace {

// Malformed bytes get no grace time, because no other report can explain them.
TimePoint due_at(LinkEnd end, TimePoint now) { return is_bad_message(end) ? now : now + FailureDetector::kGrace; }

}  // namespace

ErrorInfo FailureDetector::lost(net::LostRank rank) const {
  if (rank.host.empty()) rank.host = host_of(rank.rank);
  rank.left = has_left(rank.rank);
  return net::loss_of(rank);
}

std::string FailureDetector::host_of(int rank) const {
  const auto position = static_cast<std::size_t>(rank);
  return rank < 0 || position >= hosts_.size() ? "" : hosts_[position];
}

void FailureDetector::take_event(const net::JobEvent& event, TimePoint now) {
  if (certain_) return;
  switch (event.kind) {
    case net::JobEvent::Kind::kStopAsked:
    case net::JobEvent::Kind::kStacksAsked:
      return;
    case net::JobEvent::Kind::kRankFailed:
      certain_ = lost({.rank = event.rank,
                       .host = event.host,
                       .cause = event.cause,
                       .explained_by_output = event.explained_by_output});
      return;
    case net::JobEvent::Kind::kRankRaised:
      certain_ = net::raised_by(event.rank, event.host.empty() ? host_of(event.rank) : event.host, event.cause);
      return;
    case net::JobEvent::Kind::kHostsFailed:
      certain_ = net::hosts_failed(event.rank, event.host, event.cause);
      return;
    case net::JobEvent::Kind::kRankLeft: {
      // The rank's own message that it leaves may still be on its way through the leader.
      ErrorInfo error = lost({.rank = event.rank,
                              .host = event.host,
                              .cause = event.cause.empty() ? "exited with code 0" : event.cause,
                              .explained_by_output = event.explained_by_output});
      error.code = Errc::kRankLeft;
      if (!has_left(event.rank)) {
        suspect_until({.rank = event.rank, .error = std::move(error), .until = now + kGrace});
      }
      return;
    }
  }
}

void FailureDetector::launcher_gone(const Status& why, int own) {
  if (certain_) return;
  // If the ranks were started without distrun, a rank takes the launcher's place.
  if (const auto& ranks = why.info().ranks; !ranks.empty() && ranks.front() != own) {
    certain_ = lost({.rank = ranks.front(), .host = {}, .cause = why.info().cause});
    return;
  }
  certain_ = ErrorInfo{.code = Errc::kAborted,
                       .message = describe_ranks(std::span(&own, 1), hosts_) +
                                  " has lost its connection to the launcher, so the job ends: " + why.message(),
                       .ranks = {own},
                       .host = host_of(own),
                       .cause = "its connection to the launcher ended",
                       .usable = false};
}

void FailureDetector::suspect_until(Suspicion suspicion) {
  // An operation that failed earlier must not end the job without the name of this rank.
  for (const Suspicion& one : suspicions_) {
    if (one.rank < 0) suspicion.until = std::min(suspicion.until, one.until);
  }
  const auto known = std::find_if(suspicions_.begin(), suspicions_.end(),
                                  [&](const Suspicion& one) { return one.rank == suspicion.rank; });
  if (known == suspicions_.end()) {
    suspicions_.push_back(std::move(suspicion));
  } else if (known->silent && !suspicion.silent) {
    *known = std::move(suspicion);
  } else if (says(suspicion.error.link) > says(known->error.link)) {
    suspicion.until = std::min(suspicion.until, known->until);
    *known = std::move(suspicion);
  }
}

void FailureDetector::suspect(int rank, const std::string& sign, LinkEnd end, TimePoint now) {
  if (certain_) return;
  ErrorInfo error = lost({.rank = rank, .host = {}, .cause = sign});
  error.link = end;
  suspect_until({.rank = rank, .error = std::move(error), .until = due_at(end, now)});
}

void FailureDetector::suspect_silent_leader(int gone, TimePoint now) {
  if (certain_) return;
  const int leader = 0;
  ErrorInfo error{.code = Errc::kTimeout, .ranks = {leader, gone}, .cause = "stalled", .usable = false};
  error.host = hosts_.empty() ? "" : hosts_.front();
  error.message = describe_ranks(std::span(&leader, 1), hosts_) + " did not answer for " + seconds_text(kGrace) +
                  " (stopped, overloaded or unreachable), and " + describe_ranks(std::span(&gone, 1), hosts_) +
                  " has ended, perhaps for that reason";
  suspect_until({.rank = leader, .error = std::move(error), .until = now + kGrace, .silent = true});
}

void FailureDetector::suspect_operation(const Status& failure, TimePoint now) {
  if (certain_) return;
  ErrorInfo error = failure.info();
  error.usable = false;
  if (error.host.empty() && !error.ranks.empty()) error.host = host_of(error.ranks.front());
  const TimePoint until = due_at(error.link, now);
  suspect_until({.rank = -1, .error = std::move(error), .until = until});
}

void FailureDetector::left(int rank) {
  left_.resize(std::max(left_.size(), static_cast<std::size_t>(rank) + 1));
  left_[static_cast<std::size_t>(rank)] = true;
  drop_suspicion(rank);
}

void FailureDetector::drop_suspicion(int rank) {
  std::erase_if(suspicions_, [rank](const Suspicion& one) { return one.rank == rank; });
}

bool FailureDetector::has_left(int rank) const {
  return rank >= 0 && static_cast<std::size_t>(rank) < left_.size() && left_[static_cast<std::size_t>(rank)];
}

bool FailureDetector::suspects(int rank) const {
  return std::any_of(suspicions_.begin(), suspicions_.end(), [&](const Suspicion& one) { return one.rank == rank; });
}

std::optional<ErrorInfo> FailureDetector::verdict(TimePoint now) const {
  if (certain_) return certain_;
  // A rank that is named takes precedence over an operation that failed because of it.
  const auto weight = [](const Suspicion& one) { return std::pair(says(one.error.link), one.rank >= 0); };
  const Suspicion* due = nullptr;
  for (const Suspicion& one : suspicions_) {
    if (one.until <= now && (due == nullptr || weight(one) > weight(*due))) due = &one;
  }
  return due == nullptr ? std::nullopt : std::optional<ErrorInfo>(due->error);
}

std::optional<ErrorInfo> FailureDetector::knows_better(const ErrorInfo& other) const {
  if (certain_) return std::nullopt;
  const Suspicion* best = nullptr;
  for (const Suspicion& one : suspicions_) {
    if (says(one.error.link) > says(best == nullptr ? other.link : best->error.link)) best = &one;
  }
  return best == nullptr ? std::nullopt : std::optional<ErrorInfo>(best->error);
}

std::optional<TimePoint> FailureDetector::deadline() const {
  if (certain_) return TimePoint::min();
  std::optional<TimePoint> next;
  for (const Suspicion& one : suspicions_) {
    if (!next || one.until < *next) next = one.until;
  }
  return next;
}

}  // namespace distrun::engine
