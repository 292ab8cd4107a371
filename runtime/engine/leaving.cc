#include "runtime/engine/leaving.h"

#include <span>
#include <utility>

#include "runtime/engine/readiness/mismatch.h"
#include "runtime/engine/readiness/stall.h"

namespace distrun::engine {

bool Leaving::fail(const Status& why) {
  if (failed() || over_.load(std::memory_order_relaxed)) return false;
  ErrorInfo info = why.info();
  info.usable = false;
  failure_ = Status(std::move(info));
  return true;
}

void Leaving::finish() {
  outcome_ = failure_;
  over_.store(true, std::memory_order_release);
}

Leaving::Answer Leaving::answer(const Status& status, std::string warning) {
  for (const auto& ticket : std::exchange(going_, {})) ticket->finish(status, -1);
  return {.given = true, .warning = std::move(warning)};
}

// A member may go if the log says that it has left, and nothing of it is in flight. The leader must stay until the last
// rank has left, because it keeps the log.
Leaving::Answer Leaving::try_to_go(const Unfinished& unfinished, TimePoint now) {
  if (ended()) return answer({});
  if (!unfinished.confirmed) return {};
  if (const std::string& name = unfinished.tensor; !name.empty()) {
    return answer(Status(ErrorInfo{
        .code = Errc::kTimeout,
        .message = "shutdown: '" + name +
                   "' did not complete within --shutdown-timeout. Submit it on every rank, or wait for it before "
                   "shutdown",
        .tensor = name}));
  }
  if (!unfinished.call.empty()) {
    return answer({Errc::kTimeout,
                   "shutdown: " + unfinished.call +
                       " did not end within --shutdown-timeout. Make the same calls on every rank that takes part, "
                       "before shutdown"});
  }
  if (!drained_) return {};                           // after a join, the others' operations still run here
  if (unfinished.working.empty()) return answer({});  // the end of the log is on its way
  const bool leader = rank_ == 0;
  if (!leader) log_ended_ = true;
  if (leader && std::exchange(warned_, true)) return answer({});
  return answer({}, "shutdown: " + describe_ranks(unfinished.working, hosts_) + " did not leave within " +
                        seconds_text(now - *left_at_) + " (--shutdown-timeout). " +
                        (leader ? "Rank 0 coordinates the job, so it waits for them"
                                : "This rank leaves without waiting any longer"));
}

OwnFailure own_failure(ErrorInfo info, int rank, const std::vector<std::string>& hosts) {
  const bool memory = info.code == Errc::kOutOfMemory;
  if (memory) info.message += ". Run fewer ranks on its host, or give them more memory";
  if (!info.own_memory) info.cause = memory ? "out of memory" : "internal error";
  std::string cause = info.cause + ": " + info.message;
  info.message = describe_ranks(std::span(&rank, 1), hosts) + ": " + info.message;
  info.ranks = {rank};
  info.host = hosts.at(static_cast<std::size_t>(rank));
  return {.why = Status(std::move(info)), .cause = std::move(cause)};
}

}  // namespace distrun::engine
