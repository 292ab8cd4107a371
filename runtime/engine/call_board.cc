#include "runtime/engine/call_board.h"

#include <algorithm>

#include "runtime/engine/mismatch.h"

namespace distrun::engine {

void CallBoard::add(int rank, Call call, TimePoint now, const Status& refused) {
  auto& queue = queued_[static_cast<std::size_t>(rank)];
  if (queue.empty()) ++waiting_;
  queue.push_back({.call = std::move(call), .when = now, .refused = refused});
}

std::optional<Result<Call>> CallBoard::take(const std::vector<std::string>& hosts) {
  if (waiting_ < queued_.size()) return std::nullopt;
  std::vector<Call> calls;
  Status refused;
  for (auto& queue : queued_) {
    if (refused.ok()) refused = queue.front().refused;
    calls.push_back(std::move(queue.front().call));
    queue.pop_front();
    if (queue.empty()) --waiting_;
  }
  std::vector<std::pair<Call, std::vector<int>>> parties;
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    auto party = std::find_if(parties.begin(), parties.end(), [&](const auto& p) { return p.first == calls[rank]; });
    if (party == parties.end()) party = parties.insert(party, {calls[rank], {}});
    party->second.push_back(static_cast<int>(rank));
  }
  if (parties.size() == 1) {
    return refused.ok() ? Result<Call>(std::move(parties.front().first)) : Result<Call>(std::move(refused));
  }
  std::stable_sort(parties.begin(), parties.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  ErrorInfo error{.code = Errc::kMismatch};
  error.message = "a call that all ranks make together differs: ";
  const bool tie = parties.front().second.size() == parties.back().second.size();
  for (const auto& [call, ranks] : parties) {
    const bool majority = &ranks == &parties.back().second;
    error.message += describe_ranks(ranks, hosts) + ": " + describe(call) + "; ";
    if (!majority || tie) error.ranks.insert(error.ranks.end(), ranks.begin(), ranks.end());
  }
  std::sort(error.ranks.begin(), error.ranks.end());
  error.message += "make the same calls in the same order on every rank";
  return Result<Call>(Status(std::move(error)));
}

std::optional<CallBoard::Waiting> CallBoard::waiting() const {
  if (waiting_ == 0 || waiting_ == queued_.size()) return std::nullopt;
  Waiting result{.since = TimePoint::max()};
  for (std::size_t rank = 0; rank < queued_.size(); ++rank) {
    if (queued_[rank].empty()) {
      result.missing.push_back(static_cast<int>(rank));
    } else if (queued_[rank].front().when < result.since) {
      result.since = queued_[rank].front().when;
      result.what = describe(queued_[rank].front().call);
    }
  }
  return result;
}

std::string describe(const Call& call) {
  switch (call.kind) {
    case Call::Kind::kAddSet: {
      std::string text = "adding a process set of ranks ";
      for (std::size_t i = 0; i < call.ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(call.ranks[i]);
      return text;
    }
    case Call::Kind::kRemoveSet:
      return "removing process set " + std::to_string(call.set);
    case Call::Kind::kStartTimeline:
      return "starting the timeline '" + call.path + "'";
    case Call::Kind::kStopTimeline:
      return "stopping the timeline";
  }
  return "an unknown call";
}

}  // namespace distrun::engine
