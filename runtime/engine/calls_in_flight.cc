#include "runtime/engine/calls_in_flight.h"

#include <algorithm>
#include <utility>

namespace distrun::engine {

void CallsInFlight::add(Request request, TimePoint now) {
  auto& calls = request.call.unordered ? unordered_ : ordered_;
  calls.push_back({.call = std::move(request.call),
                   .ticket = std::move(request.ticket),
                   .timeline = request.timeline.ok() ? *std::move(request.timeline) : nullptr,
                   .since = now});
}

Status CallsInFlight::start(const entry::MakeSet& make) {
  if (!make.unordered) {
    if (!ordered_.empty()) ordered_.front().running = true;
    return {};
  }
  const auto asked = std::find_if(unordered_.begin(), unordered_.end(), [&](const CallInFlight& one) {
    return !one.running && one.call.kind == Call::Kind::kAddSet && one.call.ranks == make.ranks;
  });
  if (asked == unordered_.end())
    return {Errc::kProtocol,
            "a process set is made that this rank never asked for. This is a bug in distrun, please report it"};
  asked->running = true;
  asked->call.set = make.set;
  return {};
}

std::optional<CallInFlight> CallsInFlight::take(const entry::EndCall& end) {
  auto& calls = end.unordered ? unordered_ : ordered_;
  const auto ended = std::find_if(calls.begin(), calls.end(),
                                  [&](const CallInFlight& one) { return !end.unordered || one.call.set == end.set; });
  if (ended == calls.end()) return std::nullopt;
  CallInFlight call = std::move(*ended);
  calls.erase(ended);
  return call;
}

void CallsInFlight::fail(const Status& why) {
  for (auto* calls : {&ordered_, &unordered_}) {
    for (const CallInFlight& one : *calls) one.ticket->finish(why, -1);
    calls->clear();
  }
}

const CallInFlight* CallsInFlight::oldest() const {
  const CallInFlight* oldest = ordered_.empty() ? nullptr : &ordered_.front();
  for (const CallInFlight& one : unordered_) {
    if (one.call.kind == Call::Kind::kRemoveSet) continue;  // no caller waits for it
    if (oldest == nullptr || one.since < oldest->since) oldest = &one;
  }
  return oldest;
}

}  // namespace distrun::engine
