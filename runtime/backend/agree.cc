#include "runtime/backend/agree.h"

#include <algorithm>
#include <chrono>

namespace distrun::backend {
namespace {

// What members write under their key: "ok", or the text of their error.
constexpr const char* kOk = "ok";

// A step that failed has often used up the deadline, and how it failed is told all the same.
constexpr Duration kAnswerTime = std::chrono::seconds(1);

std::string text_of(const Status& status) { return status.ok() ? kOk : status.message(); }

// The first error that somebody has told, or that somebody has not come.
Status collect(const std::string& step, const Status& mine, const GroupSpec& group, net::Store& store,
               TimePoint deadline) {
  Status told = mine.ok() ? mine : mine.with_context("rank " + std::to_string(group.members[0]));
  Status silent;
  for (std::size_t i = 1; i < group.members.size(); ++i) {
    const std::string who = "rank " + std::to_string(group.members[i]);
    const Result<std::string> said = store.get(step + "/" + std::to_string(i), deadline);
    if (!said.ok() && silent.ok()) silent = said.status().with_context(who);
    if (said.ok() && *said != kOk && told.ok()) told = Status(Errc::kUnsupported, who + ": " + *said);
  }
  return told.ok() ? silent : told;
}

}  // namespace

Status agree(const std::string& step, const Status& mine, const GroupSpec& group, net::Store& store,
             TimePoint deadline) {
  if (group.members.size() == 1) return mine;
  const TimePoint until = std::max(deadline, Clock::now() + kAnswerTime);
  if (group.index == 0) {
    const Status verdict = collect(step, mine, group, store, until);
    const Status told = store.set(step + "/verdict", text_of(verdict));
    return verdict.ok() ? told : verdict;
  }
  DISTRUN_RETURN_IF_ERROR(store.set(step + "/" + std::to_string(group.index), text_of(mine)));
  // The first member comes as late as anybody, and waits as long for the others.
  Result<std::string> verdict = store.get(step + "/verdict", until + 2 * kAnswerTime);
  if (!verdict.ok()) return mine.ok() ? verdict.status() : mine;
  return *verdict == kOk ? Status() : Status(Errc::kUnsupported, *verdict);
}

}  // namespace distrun::backend
