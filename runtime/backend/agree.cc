#include "runtime/backend/agree.h"

namespace distrun::backend {
namespace {

// What members write under their key: "ok", or the text of their error.
constexpr const char* kOk = "ok";

std::string text_of(const Status& status) { return status.ok() ? kOk : status.message(); }

Status collect(const std::string& step, const Status& mine, const GroupSpec& group, net::Store& store,
               TimePoint deadline) {
  Status verdict = mine.ok() ? mine : mine.with_context("rank " + std::to_string(group.members[0]));
  for (std::size_t i = 1; i < group.members.size(); ++i) {
    const std::string who = "rank " + std::to_string(group.members[i]);
    const Result<std::string> said = store.get(step + "/" + std::to_string(i), deadline);
    if (!verdict.ok()) continue;
    if (!said.ok()) verdict = said.status().with_context(who);
    if (said.ok() && *said != kOk) verdict = Status(Errc::kUnsupported, who + ": " + *said);
  }
  return verdict;
}

}  // namespace

Status agree(const std::string& step, const Status& mine, const GroupSpec& group, net::Store& store,
             TimePoint deadline) {
  if (group.members.size() == 1) return mine;
  if (group.index == 0) {
    const Status verdict = collect(step, mine, group, store, deadline);
    const Status told = store.set(step + "/verdict", text_of(verdict));
    return verdict.ok() ? told : verdict;
  }
  DISTRUN_RETURN_IF_ERROR(store.set(step + "/" + std::to_string(group.index), text_of(mine)));
  Result<std::string> verdict = store.get(step + "/verdict", deadline);
  if (!verdict.ok()) return verdict.status();
  return *verdict == kOk ? Status() : Status(Errc::kUnsupported, *verdict);
}

}  // namespace distrun::backend
