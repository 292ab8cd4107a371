#include "runtime/backend/agree.h"

#include <algorithm>
#include <chrono>

#include "runtime/net/bytes/wire.h"

namespace distrun::backend {
namespace {

// A failed step has often used up its deadline. The members still need this time to exchange the error.
constexpr Duration kAnswerTime = std::chrono::seconds(1);

// The first error that a member reported. If there is none, the first member that did not answer in time.
Status collect(const std::string& step, const Status& mine, const GroupSpec& group, net::Store& store,
               TimePoint deadline) {
  Status failed = mine.ok() ? mine : mine.with_context("rank " + std::to_string(group.members[0]));
  Status silent;
  for (std::size_t i = 1; i < group.members.size(); ++i) {
    const std::string who = "rank " + std::to_string(group.members[i]);
    const Result<std::string> blob = store.get(step + "/" + std::to_string(i), deadline);
    if (!blob.ok() && silent.ok()) silent = blob.status().with_context(who);
    const Status theirs = blob.ok() ? status_of(*blob) : Status();
    if (!theirs.ok() && failed.ok()) failed = theirs.with_context(who);
  }
  return failed.ok() ? silent : failed;
}

constexpr std::size_t kMaxReason = std::size_t{1} << 16;

}  // namespace

std::string outcome_of(const Status& status) {
  net::WireWriter out;
  out.boolean(status.ok()).cut_text(status.ok() ? std::string() : status.message(), kMaxReason);
  return net::as_string(out);
}

Status status_of(const std::string& outcome) {
  net::WireReader in(net::as_bytes(outcome));
  const bool worked = in.boolean();
  const std::string why = in.string(kMaxReason);
  DISTRUN_RETURN_IF_ERROR(in.finish("how a member fared"));
  return worked ? Status() : Status(Errc::kUnsupported, why);
}

Status agree(const std::string& step, const Status& mine, const GroupSpec& group, net::Store& store,
             TimePoint deadline) {
  if (group.members.size() == 1) return mine;
  const TimePoint until = std::max(deadline, Clock::now() + kAnswerTime);
  if (group.index == 0) {
    const Status verdict = collect(step, mine, group, store, until);
    const Status kept = store.set(step + "/verdict", outcome_of(verdict));
    return verdict.ok() ? kept : verdict;
  }
  DISTRUN_RETURN_IF_ERROR(store.set(step + "/" + std::to_string(group.index), outcome_of(mine)));
  // The first member may start as late as any other, and it waits this long for the others.
  Result<std::string> verdict = store.get(step + "/verdict", until + 2 * kAnswerTime);
  if (!verdict.ok()) return mine.ok() ? verdict.status() : mine;
  return status_of(*verdict);
}

}  // namespace distrun::backend
