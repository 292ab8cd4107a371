#include "runtime/net/store/store_judge.h"

namespace distrun::net {

std::optional<JobEvent> StoreJudge::fail(JobEvent event) {
  if (failed_) return std::nullopt;
  failed_ = true;
  return event;
}

std::optional<JobEvent> StoreJudge::decide(const StoreNotice& notice) {
  using enum StoreNotice::Kind;
  const auto failure = [&](JobEvent::Kind kind, const std::string& cause) {
    return fail({.kind = kind, .rank = notice.rank, .cause = cause});
  };
  switch (notice.kind) {
    case kJoined:
      in_session_.insert(notice.rank);
      return std::nullopt;
    case kLeft:
      in_session_.erase(notice.rank);
      return std::nullopt;
    case kFailed:
      return failure(JobEvent::Kind::kRankRaised, notice.failure.cause);
    case kLeftEarly:
      return failure(JobEvent::Kind::kRankLeft, notice.failure.cause);
    case kStalled:
      if (notice.missed.ranks.empty()) return std::nullopt;
      return fail({.kind = JobEvent::Kind::kRankFailed,
                   .rank = notice.missed.ranks.front(),
                   .cause = "blocked the other ranks: " + notice.failure.cause});
    case kFollows:  // may arrive before the end of the missed rank's own connection
      if (notice.missed.ranks.empty()) return std::nullopt;
      return fail({.kind = JobEvent::Kind::kRankFailed,
                   .rank = notice.missed.ranks.front(),
                   .cause = "rank " + std::to_string(notice.rank) + " has lost its connection to it"});
    case kRefused:  // the refused process reports this itself
    case kWaits:    // only distrun's launcher shows these
    case kState:
    case kNoProgress:
    case kStopping:  // the ranks have agreed, and the other launcher limits the time
      return std::nullopt;
    case kDisconnected:
      // The connection of a rank that left in good order ends too.
      if (in_session_.erase(notice.rank) == 0) return std::nullopt;
      return failure(JobEvent::Kind::kRankFailed, "its process (pid " + std::to_string(notice.pid) + ") ended");
  }
  return std::nullopt;
}

}  // namespace distrun::net
