// The loop's part that follows the decision log. All members read the same entries in the same order.
#include <algorithm>
#include <utility>

#include "runtime/engine/loop.h"

namespace distrun::engine {

void EngineLoop::read(Entry& entry) {
  if (!failed_.ok()) return;
  ++read_;
  std::visit([this](auto& one) { follow(one); }, entry);
}

void EngineLoop::follow(entry::Run& run) {
  ProcessSet* set = sets_.find(run.set);
  if (set == nullptr || !set->is_member()) return;
  auto tensors = member_.run(run);
  if (!tensors.ok()) return fail(tensors.status(), true);
  executor_.run(*set, *std::move(tensors), done_);
}

void EngineLoop::follow(entry::Fail& failed) {
  ProcessSet* set = sets_.find(failed.set);
  if (set == nullptr || !set->is_member()) return;
  const auto& meant = failed.ranks;
  if (!meant.empty() && std::find(meant.begin(), meant.end(), options_.world.rank) == meant.end()) return;
  auto tensor = member_.fail(failed);
  // A tensor that this rank never submitted fails on those that did (their peers have left).
  if (tensor.ok()) done_.push_back({.tensor = *std::move(tensor), .status = failed.error});
}

void EngineLoop::follow(entry::Evict& evict) { member_.evict(evict); }

// Blocks, as an exception: making backends is collective over the members, and all of them come to this entry without
// waiting for one another, because starting an operation never blocks and the leader sees to it that all have it.
void EngineLoop::follow(entry::MakeSet& make) {
  const int rank = options_.world.rank;
  if (make.members_only && !std::binary_search(make.ranks.begin(), make.ranks.end(), rank)) return;
  if (make.unordered) {
    const auto asked = std::find_if(unordered_.begin(), unordered_.end(), [&](const CallInFlight& one) {
      return !one.running && one.call.kind == Call::Kind::kAddSet && one.call.ranks == make.ranks;
    });
    if (asked == unordered_.end()) return fail({Errc::kProtocol, "a set is made that this rank never asked for"}, true);
    asked->running = true;
    asked->call.set = make.set;
  } else if (!calls_.empty()) {
    calls_.front().running = true;
  }
  ProcessSet& set = sets_.add(make.set, make.ranks);
  if (!set.is_member()) return;
  auto backends = options_.backends->make(make.set, make.ranks);
  seen_ = Clock::now();  // it has waited for others, which is no standing still
  everywhere_ = true;
  std::vector<Message> messages;
  messages.emplace_back(message::SetMade{.set = make.set, .result = backends.status()});
  if (backends.ok()) set.backends = *std::move(backends);
  announce(std::move(messages));
}

void EngineLoop::follow(entry::RemoveSet& remove) {
  shared_.table.forget_set(remove.set);
  member_.remove_set(remove.set);
  retiring_.push_back(remove.set);
}

std::optional<EngineLoop::CallInFlight> EngineLoop::take_call(const entry::EndCall& end) {
  auto& calls = end.unordered ? unordered_ : calls_;
  const auto ended = std::find_if(calls.begin(), calls.end(),
                                  [&](const CallInFlight& one) { return !end.unordered || one.call.set == end.set; });
  if (ended == calls.end()) return std::nullopt;
  CallInFlight call = std::move(*ended);
  calls.erase(ended);
  return call;
}

void EngineLoop::follow(entry::EndCall& end) {
  if (!end.ranks.empty() && !std::binary_search(end.ranks.begin(), end.ranks.end(), options_.world.rank)) return;
  const auto taken = take_call(end);
  if (!taken) return fail({Errc::kProtocol, "a collective call ended that this rank never made"}, true);
  const auto& [call, ticket, timeline, since, running] = *taken;
  if (call.kind == Call::Kind::kAddSet && running) {
    if (end.result.ok()) {
      shared_.table.open_set(end.set, call.ranks);
    } else {
      drop_set(end.set);
    }
  }
  // Refused: the set stays as it was.
  if (call.kind == Call::Kind::kRemoveSet && !end.result.ok()) {
    if (const ProcessSet* set = sets_.find(call.set)) shared_.table.open_set(call.set, set->members);
  }
  if (call.kind == Call::Kind::kAddSet && running && call.ranks.front() == options_.world.rank) {
    options_.backends->settled(end.set);
  }
  ticket->finish(end.result, end.result.ok() ? end.set : -1);
  shared_.token.news().change_and_wake();
}

void EngineLoop::follow(entry::Timeline& timeline) {
  stop_timeline();
  if (!timeline.path.empty()) start_timeline();
}

void EngineLoop::follow(entry::Left& left) {
  detector_.left(left.rank);
  if (!leader_) return;
  stopping_.left(left.rank);
  decide_stop();
}

void EngineLoop::follow(entry::Shutdown&) { log_ended_ = true; }

// A removed set's backends go when nothing of it is in flight any more.
void EngineLoop::retire_sets() {
  std::erase_if(retiring_, [this](int set) {
    if (executor_.in_flight(set) > 0) return false;
    drop_set(set);
    return true;
  });
}

void EngineLoop::drop_set(int set) {
  sets_.remove(set);
  options_.backends->gone(set);
}

}  // namespace distrun::engine
