#include "runtime/engine/follower.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

#include "runtime/engine/agreement/call_board.h"

namespace distrun::engine {

Follower::Follower(const EngineOptions& options, TensorTable& table, WakeWord& news)
    : options_(options),
      table_(table),
      news_(news),
      member_(options.world.gpus.empty() ? 0 : options.world.gpus.front()),
      sets_(options.world.rank),
      executor_(sets_, options.settings.huge_pages) {}

Status Follower::open() {
  std::vector<int> world(static_cast<std::size_t>(options_.world.size));
  std::iota(world.begin(), world.end(), 0);
  ProcessSet& set = sets_.add(0, world);
  auto backends = options_.backends->make(0, world);
  if (!backends.ok()) return backends.status();
  set.backends = *std::move(backends);
  table_.open_set(0, std::move(world));
  return {};
}

// --- callers' requests ---

// Refuses a whole group here, if one tensor of it has no backend that can run it. Later would be too late: another part
// of the group would have run by then.
void Follower::submit(std::vector<Message>& out) {
  table_.take_new(fresh_);
  changes_ += fresh_.size();
  std::map<std::pair<int, std::uint64_t>, std::string> refusals;  // by set and digest of the group
  const auto group_of = [](const Tensor& tensor) {
    return std::pair(tensor.submission().process_set, tensor.signature().group.digest);
  };
  for (const TensorPtr& tensor : fresh_) {
    const ProcessSet* set = tensor->signature().group.size == 0 ? nullptr : sets_.find(tensor->key().set);
    if (set == nullptr) continue;
    if (const Status can = Executor::can_run(*set, *tensor); !can.ok()) {
      refusals.try_emplace(group_of(*tensor), can.message());
    }
  }
  for (const TensorPtr& tensor : fresh_) {
    const auto refusal = refusals.find(group_of(*tensor));
    member_.submit(tensor, out, refusal == refusals.end() ? std::string() : refusal->second);
  }
  fresh_.clear();
}

void Follower::forget_new() {
  table_.take_new(fresh_);
  fresh_.clear();
}

void Follower::call(Request request, std::vector<Message>& out) {
  out.emplace_back(message::Called{.call = request.call, .refused = request.timeline.status()});
  calls_.add(std::move(request), Clock::now());
  ++changes_;
}

// --- the log ---

Follower::Followed Follower::follow(Entry& entry) {
  if (auto* run = std::get_if<entry::Run>(&entry)) return {.failure = follow(*run)};
  if (auto* failed = std::get_if<entry::Fail>(&entry)) return {.failure = follow(*failed)};
  if (auto* make = std::get_if<entry::MakeSet>(&entry)) return follow(*make);
  if (auto* end = std::get_if<entry::EndCall>(&entry)) return {.failure = follow(*end)};
  if (auto* remove = std::get_if<entry::RemoveSet>(&entry)) follow(*remove);
  if (const auto* evict = std::get_if<entry::Evict>(&entry)) member_.evict(*evict);
  return {};
}

Status Follower::follow(entry::Run& run) {
  ProcessSet* set = sets_.find(run.set);
  if (set == nullptr || !set->is_member()) return {};
  auto tensors = member_.run(run);
  if (!tensors.ok()) return tensors.status();
  executor_.run(*set, *std::move(tensors), done_);
  return {};
}

Status Follower::follow(entry::Fail& failed) {
  const ProcessSet* set = sets_.find(failed.set);
  if (set == nullptr || !set->is_member()) return {};
  const auto& meant = failed.ranks;
  if (!meant.empty() && std::find(meant.begin(), meant.end(), options_.world.rank) == meant.end()) return {};
  auto tensor = member_.fail(failed);
  // It fails on the ranks that submitted it, because their peers have left. A rank that never submitted it has nothing
  // to do.
  if (tensor.ok()) done_.push_back({.tensor = *std::move(tensor), .status = failed.error});
  return {};
}

// Blocks, which nothing else here does: making backends is collective over the members. All members reach this entry
// without waiting for one another, because starting an operation never blocks and the leader ensures that all get the
// entry.
Follower::Followed Follower::follow(entry::MakeSet& make) {
  const int rank = options_.world.rank;
  if (make.members_only && !std::binary_search(make.ranks.begin(), make.ranks.end(), rank)) return {};
  if (Status started = calls_.start(make); !started.ok()) return {.failure = std::move(started)};
  ProcessSet& set = sets_.add(make.set, make.ranks);
  if (!set.is_member()) return {};
  auto backends = options_.backends->make(make.set, make.ranks);
  message::SetMade made{.set = make.set, .result = backends.status()};
  if (backends.ok()) set.backends = *std::move(backends);
  return {.made = std::move(made)};
}

void Follower::follow(entry::RemoveSet& remove) {
  table_.forget_set(remove.set);
  member_.remove_set(remove.set);
  retiring_.push_back(remove.set);
}

Status Follower::follow(entry::EndCall& end) {
  if (!end.ranks.empty() && !std::binary_search(end.ranks.begin(), end.ranks.end(), options_.world.rank)) return {};
  const auto taken = calls_.take(end);
  if (!taken)
    return {Errc::kProtocol,
            "a collective call ended that this rank never made. This is a bug in distrun, please report it"};
  const Call& call = taken->call;
  const bool added = call.kind == Call::Kind::kAddSet && taken->running;
  if (added && end.result.ok()) table_.open_set(end.set, call.ranks);
  if (added && !end.result.ok()) drop_set(end.set);
  // The removal was refused, so the set stays as it was.
  if (call.kind == Call::Kind::kRemoveSet && !end.result.ok()) {
    if (const ProcessSet* set = sets_.find(call.set)) table_.open_set(call.set, set->members);
  }
  if (added && call.ranks.front() == options_.world.rank) options_.backends->set_decided(end.set);
  taken->ticket->finish(end.result, end.result.ok() ? end.set : -1);
  ++changes_;
  news_.change_and_wake();
  return {};
}

void Follower::retire_sets() {
  std::erase_if(retiring_, [this](int set) {
    if (executor_.in_flight(set) > 0) return false;
    drop_set(set);
    return true;
  });
}

void Follower::drop_set(int set) {
  sets_.remove(set);
  options_.backends->gone(set);
}

// --- operations ---

bool Follower::complete() {
  if (done_.empty()) return false;
  changes_ += done_.size();
  table_.complete(done_);
  done_.clear();
  news_.change_and_wake();
  return true;
}

// The backends stop first, so that nothing touches a tensor's memory when its handle completes.
void Follower::fail(const Status& why) {
  table_.close(why);
  executor_.abort(why);
  calls_.fail(why);
}

void Follower::complete_all(const Status& why) {
  for (TensorPtr& tensor : table_.all_in_flight()) done_.push_back({.tensor = std::move(tensor), .status = why});
  complete();
}

void Follower::stop_recording() {
  executor_.observe(nullptr);
  recorder_ = {};
}

// --- what is in flight ---

bool Follower::has_backend_lost(bool everywhere) const {
  const auto lost = [](const ProcessSet& set) {
    return std::any_of(set.backends.begin(), set.backends.end(),
                       [](const auto& backend) { return backend && backend->lost_peer().has_value(); });
  };
  const auto active = executor_.active();
  return everywhere
             ? std::any_of(sets_.all().begin(), sets_.all().end(), [&](const auto& set) { return lost(set.second); })
             : std::any_of(active.begin(), active.end(), [&](const ProcessSet* set) { return lost(*set); });
}

std::vector<LostPeer> Follower::lost_peers() const {
  std::vector<LostPeer> lost;
  for (const auto& [id, set] : sets_.all()) {
    for (const auto& backend : set.backends) {
      auto link = backend ? backend->lost_peer() : std::nullopt;
      if (!link) continue;
      lost.push_back({.rank = link->peer,
                      .backend = backend->name(),
                      .end = link->end,
                      .how = std::move(link->how),
                      .in_use = set.in_flight > 0});
    }
  }
  return lost;
}

std::optional<OldestWork> Follower::oldest_work(const std::optional<TimePoint>& stopping,
                                                const std::optional<TimePoint>& left) const {
  const auto name = [](const Tensor& tensor) {
    return std::string(name_of(tensor.signature().kind)) + " '" + tensor.submission().name + "'";
  };
  TimePoint since;
  if (const Tensor* running = executor_.oldest(since)) {
    const bool on_gpu = running->signature().device == DeviceType::kCuda;
    const ProcessSet* set = sets_.find(running->submission().process_set);
    const bool with_leader = set == nullptr || set->index_of(0) >= 0;
    return OldestWork{.what = name(*running),
                      .tensor = running->submission().name,
                      .since = since,
                      .running = true,
                      .on_gpu = on_gpu,
                      .with_leader = with_leader};
  }
  // Engines agree on this without their programs, so it takes long only if one of them does not answer.
  if (stopping) return OldestWork{.what = "should_stop()", .since = *stopping, .running = true};
  const TensorPtr waiting = member_.oldest();
  const CallInFlight* call = calls_.oldest();
  if (call != nullptr && (!waiting || call->since < waiting->submitted_at())) {
    return OldestWork{.what = describe(call->call), .since = call->since, .running = call->running};
  }
  if (waiting)
    return OldestWork{.what = name(*waiting), .tensor = waiting->submission().name, .since = waiting->submitted_at()};
  if (left) return OldestWork{.what = "shutdown", .since = *left};
  return std::nullopt;
}

bool Follower::nothing_in_flight() const {
  return executor_.idle() && calls_.oldest() == nullptr && table_.all_in_flight().empty();
}

std::string Follower::first_tensor() const {
  const auto in_flight = table_.all_in_flight();
  return in_flight.empty() ? std::string() : in_flight.front()->submission().name;
}

std::string Follower::oldest_call() const {
  const CallInFlight* call = calls_.oldest();
  return call == nullptr ? std::string() : describe(call->call);
}

}  // namespace distrun::engine
