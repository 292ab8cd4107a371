#include "runtime/engine/agreement/call_board.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/engine/readiness/mismatch.h"

namespace distrun::engine {
namespace {

constexpr std::size_t kMaxGroupsNamed = 8;  // groups with different calls; the largest is one of them

std::vector<int> ascending(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

struct CallingRanks {
  const Call* call;
  std::vector<int> ranks;
};

Status difference(std::vector<CallingRanks> groups, const std::string& what, const std::vector<std::string>& hosts) {
  std::stable_sort(groups.begin(), groups.end(),
                   [](const CallingRanks& a, const CallingRanks& b) { return a.ranks.size() < b.ranks.size(); });
  ErrorInfo error{.code = Errc::kMismatch, .message = what};
  const bool tie = groups.front().ranks.size() == groups.back().ranks.size();
  std::size_t unnamed = 0;  // number of ranks
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const CallingRanks& calling = groups[i];
    const bool majority = i + 1 == groups.size();
    if (!majority || tie) error.ranks.insert(error.ranks.end(), calling.ranks.begin(), calling.ranks.end());
    if (!majority && i + 1 >= kMaxGroupsNamed) {
      unnamed += calling.ranks.size();
      continue;
    }
    if (unnamed > 0) error.message += std::to_string(unnamed) + " more with other calls; ";
    error.message += describe_ranks(calling.ranks, hosts) + ": " + describe(*calling.call) + "; ";
  }
  std::sort(error.ranks.begin(), error.ranks.end());
  return Status(std::move(error));
}

}  // namespace

void CallBoard::add(int rank, Call call, std::vector<int> takers, TimePoint now, const Status& refused) {
  latest_ = now;
  if (call.unordered) return add_unordered(rank, std::move(call), std::move(takers), now);
  auto& queue = queued_[static_cast<std::size_t>(rank)];
  queue.push_back({.call = std::move(call), .takers = std::move(takers), .when = now, .refused = refused});
  if (current_[static_cast<std::size_t>(rank)] == nullptr) advance(rank);
}

void CallBoard::add_unordered(int rank, Call call, std::vector<int> takers, TimePoint now) {
  auto open = std::find_if(unordered_.begin(), unordered_.end(), [&](const Open& one) {
    return one.call == call && std::find(one.made.begin(), one.made.end(), rank) == one.made.end();
  });
  if (open == unordered_.end()) {
    open = unordered_.insert(unordered_.end(), {.number = next_number_++,
                                                .call = std::move(call),
                                                .takers = std::move(takers),
                                                .since = now,
                                                .counts = now,
                                                .reported = now});
  }
  open->made.push_back(rank);
  if (open->made.size() < takers_of(*open)) return;
  ready_.push_back({.call = std::move(open->call), .ranks = std::move(open->takers)});
  unordered_.erase(open);
}

std::size_t CallBoard::takers_of(const Open& open) const {
  return open.takers.empty() ? static_cast<std::size_t>(world_size_) : open.takers.size();
}

// True if the rank's next call is one that has already failed on others. If it is another call, the rank is past the
// place of some failed calls: those that it would have made together with the same ranks. They will not come, so they
// are forgotten.
bool CallBoard::take_failed(int rank, const Queued& next) {
  auto& failed = failed_elsewhere_[static_cast<std::size_t>(rank)];
  const auto known =
      std::find_if(failed.begin(), failed.end(), [&](const FailedCall& one) { return one.call == next.call; });
  if (known != failed.end()) {
    ready_.push_back({.call = next.call, .ranks = {rank}, .refused = std::move(known->why)});
    failed.erase(known);
    return true;
  }
  std::erase_if(failed, [&](const FailedCall& one) {
    return next.takers.empty() || std::any_of(next.takers.begin(), next.takers.end(), [&](int taker) {
             return std::binary_search(one.failed.begin(), one.failed.end(), taker);
           });
  });
  return false;
}

// The rank is in no call. Starts its next one, if it has made one.
void CallBoard::advance(int rank) {
  auto& queue = queued_[static_cast<std::size_t>(rank)];
  while (!queue.empty()) {
    Queued next = std::move(queue.front());
    queue.pop_front();
    if (take_failed(rank, next)) continue;
    auto open = std::find_if(open_.begin(), open_.end(), [&](const Open& one) { return one.call == next.call; });
    if (open == open_.end()) {
      open = open_.insert(open_.end(), {.number = next_number_++,
                                        .call = std::move(next.call),
                                        .takers = std::move(next.takers),
                                        .since = next.when,
                                        .counts = latest_,
                                        .reported = latest_});
    }
    open->since = std::min(open->since, next.when);
    if (open->refused.ok()) open->refused = next.refused;
    open->made.push_back(rank);
    current_[static_cast<std::size_t>(rank)] = &*open;
    --idle_;
    changed_ = true;
    if (open->made.size() < takers_of(*open)) return;
    open->taken = true;
    ready_.push_back({.number = open->number, .call = open->call, .ranks = open->takers, .refused = open->refused});
    return;
  }
}

std::optional<CallBoard::Next> CallBoard::take(const std::vector<std::string>& hosts) {
  if (ready_.empty() && std::exchange(changed_, false)) {
    const Calls stuck = circle();
    if (!stuck.empty()) fail_circle(stuck, hosts);
  }
  if (ready_.empty()) return std::nullopt;
  Next next = std::move(ready_.front());
  ready_.pop_front();
  return next;
}

void CallBoard::end(std::uint64_t number) {
  if (number != 0) close({number});
}

void CallBoard::close(std::vector<std::uint64_t> numbers) {
  std::vector<int> free;
  for (auto open = open_.begin(); open != open_.end();) {
    const bool ends = std::find(numbers.begin(), numbers.end(), open->number) != numbers.end();
    if (ends) free.insert(free.end(), open->made.begin(), open->made.end());
    open = ends ? open_.erase(open) : std::next(open);
  }
  std::sort(free.begin(), free.end());
  for (const int rank : free) current_[static_cast<std::size_t>(rank)] = nullptr;
  idle_ += free.size();
  for (const int rank : free) advance(rank);
}

// --- circles ---

CallBoard::Calls CallBoard::waits_for(const Open& open) const {
  Calls calls;
  if (open.takers.empty()) {
    for (const Open& other : open_) {
      if (&other != &open && !other.taken) calls.push_back(&other);
    }
    return calls;
  }
  for (const int rank : open.takers) {
    const Open* other = current_[static_cast<std::size_t>(rank)];
    if (other == nullptr || other == &open || other->taken) continue;
    if (std::find(calls.begin(), calls.end(), other) == calls.end()) calls.push_back(other);
  }
  return calls;
}

// Finds the shortest circle, so that no call fails because of a mistake of ranks in another call.
CallBoard::Calls CallBoard::circle_through(const Open& start) const {
  std::map<const Open*, const Open*> before;
  std::deque<const Open*> look{&start};
  while (!look.empty()) {
    const Open* open = look.front();
    look.pop_front();
    for (const Open* next : waits_for(*open)) {
      if (next == &start) {
        Calls calls;
        for (const Open* one = open; one != &start; one = before.at(one)) calls.push_back(one);
        calls.push_back(&start);
        return calls;
      }
      if (before.emplace(next, open).second) look.push_back(next);
    }
  }
  return {};
}

// True if all ranks are in a call of all ranks, but not in the same one.
bool CallBoard::all_differ() const {
  return idle_ == 0 && open_.size() > 1 &&
         std::all_of(open_.begin(), open_.end(), [](const Open& open) { return open.takers.empty(); });
}

// For calls of all ranks, waits until all ranks have called. Only then the odd rank is known.
CallBoard::Calls CallBoard::circle() const {
  Calls calls;
  if (all_differ()) {
    for (const Open& open : open_) calls.push_back(&open);
    return calls;
  }
  for (const Open& open : open_) {
    if (open.taken || open.takers.empty()) continue;
    calls = circle_through(open);
    if (!calls.empty()) return calls;
  }
  return calls;
}

void CallBoard::fail_circle(const Calls& calls, const std::vector<std::string>& hosts) {
  std::vector<CallingRanks> groups;
  bool members_alone = false;
  for (const Open* open : calls) {
    groups.push_back({.call = &open->call, .ranks = ascending(open->made)});
    members_alone = members_alone || !open->takers.empty();
  }
  ErrorInfo error =
      difference(
          std::move(groups),
          members_alone ? "ranks wait for each other in different calls: " : "ranks make different calls: ", hosts)
          .info();
  error.message += "make the same calls in the same order on every rank";
  if (members_alone) error.message += " that takes part";
  fail(calls, Status(std::move(error)));
}

void CallBoard::fail(const Calls& calls, const Status& why) {
  std::vector<std::uint64_t> numbers;
  Next next{.refused = why};
  for (const Open* open : calls) {
    numbers.push_back(open->number);
    next.ranks.insert(next.ranks.end(), open->made.begin(), open->made.end());
  }
  std::sort(next.ranks.begin(), next.ranks.end());
  const auto add_failed = [&](int rank, const Open& open) {
    if (std::binary_search(next.ranks.begin(), next.ranks.end(), rank)) return;
    failed_elsewhere_[static_cast<std::size_t>(rank)].push_back({.call = open.call, .failed = next.ranks, .why = why});
  };
  for (const Open* open : calls) {
    for (const int rank : open->takers) add_failed(rank, *open);
    for (int rank = 0; open->takers.empty() && rank < world_size_; ++rank) add_failed(rank, *open);
  }
  ready_.push_back(std::move(next));  // before the next calls of its ranks
  close(std::move(numbers));
}

void CallBoard::refuse(std::uint64_t number, const Status& why) {
  const auto open = std::find_if(open_.begin(), open_.end(), [&](const Open& one) { return one.number == number; });
  if (open != open_.end() && !open->taken) fail({&*open}, why);
}

// --- waiting ---

CallBoard::Waiting CallBoard::waiting_for(const Open& open) {
  return {.number = open.number,
          .what = describe(open.call),
          .made = open.made,
          .since = open.since,
          .counts = open.counts,
          .reported = open.reported};
}

std::vector<CallBoard::Waiting> CallBoard::waiting() const {
  std::vector<Waiting> all;
  for (const Open& open : open_) {
    if (open.taken) continue;
    Waiting one = waiting_for(open);
    const auto look = [&](int rank) {
      if (current_[static_cast<std::size_t>(rank)] == nullptr) one.missing.push_back(rank);
    };
    for (const int rank : open.takers) look(rank);
    for (int rank = 0; open.takers.empty() && rank < world_size_; ++rank) look(rank);
    if (!one.missing.empty()) all.push_back(std::move(one));
  }
  for (const Open& open : unordered_) {
    if (open.call.kind == Call::Kind::kRemoveSet) continue;
    Waiting one = waiting_for(open);
    one.unordered = true;
    one.missing = open.takers;
    std::erase_if(one.missing,
                  [&](int rank) { return std::find(open.made.begin(), open.made.end(), rank) != open.made.end(); });
    if (!one.missing.empty()) all.push_back(std::move(one));
  }
  return all;
}

void CallBoard::note_reported(std::uint64_t number, TimePoint now) {
  for (auto* calls : {&open_, &unordered_}) {
    for (Open& open : *calls) {
      if (open.number == number) open.reported = now;
    }
  }
}

void CallBoard::suspended(const Suspension& gap) {
  for (auto& queue : queued_) {
    for (Queued& one : queue) one.when = gap.moved(one.when);
  }
  for (auto* calls : {&open_, &unordered_}) {
    for (Open& open : *calls) {
      for (TimePoint* const time : {&open.since, &open.counts, &open.reported}) *time = gap.moved(*time);
    }
  }
  latest_ = gap.moved(latest_);
}

std::string describe(const Call& call) {
  switch (call.kind) {
    case Call::Kind::kAddSet: {
      std::string text = "adding a process set of ranks ";
      for (std::size_t i = 0; i < call.ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(call.ranks[i]);
      return text + (call.members_only ? " by its members alone" : "");
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
