#include "runtime/engine/agreement/coordinator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/engine/readiness/fusion.h"
#include "runtime/engine/readiness/mismatch.h"

namespace distrun::engine {
namespace {

bool are_ranks(const std::vector<int>& ranks, int world_size) {
  return !ranks.empty() && std::is_sorted(ranks.begin(), ranks.end(), std::less_equal<>()) && ranks.front() >= 0 &&
         ranks.back() < world_size;
}

Status of_group(const PendingTensor& tensor, const Status& why) {
  return why.with_context("tensor '" + tensor.name + "' runs only together with its group");
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options)
    : options_(std::move(options)),
      next_set_(options_.next_set != nullptr ? *options_.next_set : own_next_set_),
      ids_(options_.cache_capacity, options_.world_size),
      calls_(options_.world_size),
      left_(static_cast<std::size_t>(options_.world_size)) {
  std::vector<int> world(static_cast<std::size_t>(options_.world_size));
  std::iota(world.begin(), world.end(), 0);
  sets_[0] = std::move(world);
}

std::optional<std::size_t> Coordinator::position(int rank, int set) const {
  const auto found = sets_.find(set);
  if (found == sets_.end()) return std::nullopt;
  const auto& members = found->second;
  const auto where = std::lower_bound(members.begin(), members.end(), rank);
  if (where == members.end() || *where != rank) return std::nullopt;
  return static_cast<std::size_t>(where - members.begin());
}

// --- tensors ---

void Coordinator::submitted(int rank, const message::Submitted& request, TimePoint now) {
  const auto& shape = request.signature.shape;
  add(rank, {.set = request.set,
             .name = request.name,
             .signature = &request.signature,
             .first_dim = shape.empty() ? 0 : shape.front(),
             .splits = request.signature.splits,
             .refusal = request.refusal,
             .now = now});
}

void Coordinator::ready(int rank, TensorId id, TimePoint now) {
  const auto [record, evicted] = ids_.find(id);
  if (record == nullptr) return protocol_error(rank, "the unknown tensor id " + std::to_string(id));
  SubmissionEvent event{.set = record->set,
                        .name = record->name,
                        .signature = &record->signature,
                        .id = evicted ? kNoId : id,
                        .now = now};
  if (const auto member = position(rank, record->set)) {
    const std::span<const std::int64_t> dims = record->first_dims;
    const std::size_t members = sets_[record->set].size();
    if (dims.size() > members) {  // as its splits: what it sends to nobody is no part of the agreement
      event.splits = dims.subspan(*member * members, members);
      event.first_dim = std::accumulate(event.splits.begin(), event.splits.end(), std::int64_t{0});
    } else if (!dims.empty()) {
      event.first_dim = dims[*member];
    }
  }
  add(rank, event);
}

void Coordinator::has_read(int rank, std::uint64_t index) { ids_.has_read(rank, index); }

void Coordinator::add(int rank, SubmissionEvent event) {
  if (finished()) return;
  const auto member = position(rank, event.set);
  if (!member || left_[static_cast<std::size_t>(rank)]) {
    return protocol_error(rank, "tensor '" + std::string(event.name) + "' of a process set that it is not in");
  }
  // A join that could fail as a tensor does would go while it is looked at.
  const bool joins = event.signature->kind == OpKind::kJoin;
  if (joins != (event.name == kJoinName) || (joins && event.signature->group.size != 0)) {
    return protocol_error(rank, "tensor '" + std::string(event.name) + "' as a join, or a join as a tensor");
  }
  event.member = *member;
  event.members = &sets_[event.set];
  PendingTensor* tensor = pending_.add(event);
  if (tensor == nullptr) return protocol_error(rank, "tensor '" + std::string(event.name) + "' twice");
  if (joins) {
    join(rank, event.set, event.now);
  } else if (tensor->is_new()) {
    excuse_joined(*tensor, event.now);
  }
  look_later(event.now);
  if (tensor->complete()) {
    complete(*tensor, event.now);
  } else if (hopeless(*tensor)) {
    fail_hopeless();
  } else if (left_count_ > 0) {
    check_left(*tensor);
  }
}

// Who joins later is excused by join().
void Coordinator::excuse_joined(PendingTensor& tensor, TimePoint now) {
  for (const int rank : joined_.ranks(tensor.set)) {
    const std::size_t member = *position(rank, tensor.set);
    if (!tensor.has(member)) Readiness::excuse(tensor, member, now);
  }
}

// From now on nothing of the set waits for this rank, until all its members have joined.
void Coordinator::join(int rank, int set, TimePoint now) {
  joined_.join(set, rank);
  last_join_ = now;
  const std::size_t member = *position(rank, set);
  // All before any is completed: an error of one fails the tensors of its groups, and who is excused decides which.
  std::vector<std::string> whole;
  for (PendingTensor* tensor : pending_.waiting()) {
    if (tensor->set != set || tensor->signature.kind == OpKind::kJoin) continue;
    if (!tensor->has(member)) Readiness::excuse(*tensor, member, now);
    if (tensor->complete()) whole.push_back(tensor->name);
  }
  for (const std::string& name : whole) {
    if (PendingTensor* tensor = pending_.find(set, name)) complete(*tensor, now);
  }
  fail_hopeless();
}

void Coordinator::complete(PendingTensor& tensor, TimePoint now) {
  if (tensor.signature.kind == OpKind::kJoin) {
    tensor.first_dims = {joined_.ranks(tensor.set).back()};
    joined_.forget(tensor.set);
  }
  Status result = verdict(tensor, options_.hosts);
  if (result.ok()) result = check_joined(tensor, options_.hosts);
  if (!result.ok()) {
    fail_groups_of(tensor, result);
    fail(tensor, result);
    return fail_hopeless();
  }
  if (tensor.signature.group.size != 0) return complete_in_group(tensor, now);
  if (tensor.reported != tensor.first) went_on_.add(tensor, now);
  ready_.push_back(&tensor);
}

void Coordinator::complete_in_group(PendingTensor& tensor, TimePoint now) {
  const GroupKey key{tensor.set, tensor.signature.group.digest};
  const std::uint32_t size = tensor.signature.group.size;  // fail() frees the tensor
  Group& group = groups_[key];
  ++group.seen;
  if (group.failed.ok()) {
    if (tensor.reported != tensor.first) went_on_.add(tensor, now);
    group.complete.push_back(&tensor);
  } else {
    fail(tensor, of_group(tensor, group.failed));
  }
  if (group.seen < size) return;
  ready_.insert(ready_.end(), group.complete.begin(), group.complete.end());
  groups_.erase(key);
}

// Some members disagree on `tensor`: whatever shares a group with it on any of them does not run either.
void Coordinator::fail_groups_of(const PendingTensor& tensor, const Status& why) {
  // By digest; the members that tell another one, and with it that they will not send what is in this one alone.
  std::map<std::uint64_t, std::set<std::size_t>> elsewhere{{tensor.signature.group.digest, {}}};
  std::map<std::uint64_t, const GroupTag*> tags{{tensor.signature.group.digest, &tensor.signature.group}};
  for (const auto& [member, signature] : tensor.odd) tags.emplace(signature.group.digest, &signature.group);
  for (std::size_t member = 0; member < tensor.members->size(); ++member) {
    const GroupTag& own = tensor.signature_of(member).group;
    if (!tensor.has(member) || own.size == 0) continue;
    for (const auto& [digest, tag] : tags) {
      if (own.digest != digest) elsewhere[digest].insert(member);
    }
  }
  for (const auto& [digest, tag] : tags) {
    if (tag->size == 0) continue;
    const GroupKey key{tensor.set, digest};
    Group& group = groups_[key];
    group.failed = why;
    group.elsewhere.merge(elsewhere[digest]);
    for (PendingTensor* other : std::exchange(group.complete, {})) {
      fail(*other, of_group(*other, why));
    }
    if (++group.seen >= tag->size) groups_.erase(key);
  }
}

// The error of its group, if the tensor waits only for members that have other groups in the place of its own.
std::optional<Status> Coordinator::hopeless(const PendingTensor& tensor) const {
  if (tensor.signature.group.size == 0 || tensor.complete()) return std::nullopt;
  const Status* why = nullptr;
  const auto waits_in_vain = [&](const GroupTag& tag) {
    const auto found = groups_.find({tensor.set, tag.digest});
    if (tag.size == 0 || found == groups_.end() || found->second.failed.ok()) return false;
    if (why == nullptr) why = &found->second.failed;
    for (std::size_t member = 0; member < tensor.members->size(); ++member) {
      if (!tensor.has(member) && !found->second.elsewhere.contains(member)) return false;
    }
    return true;
  };
  const bool all = waits_in_vain(tensor.signature.group) &&
                   std::all_of(tensor.odd.begin(), tensor.odd.end(),
                               [&](const auto& one) { return waits_in_vain(one.second.group); });
  return all ? std::optional(*why) : std::nullopt;
}

// Until none is left: each one that fails tells more of who has which groups, on which earlier ones may wait.
void Coordinator::fail_hopeless() {
  for (bool again = true; again;) {
    again = false;
    for (PendingTensor* tensor : pending_.waiting()) {
      const auto why = hopeless(*tensor);
      if (!why) continue;
      fail_with_group(*tensor, *why);
      again = true;
    }
  }
}

void Coordinator::fail_with_group(PendingTensor& tensor, const Status& why) {
  fail_groups_of(tensor, why);
  fail(tensor, of_group(tensor, why));
}

void Coordinator::fail(PendingTensor& tensor, const Status& error) {
  std::vector<int> ranks;
  if (!tensor.complete()) ranks = tensor.submitted_ranks();
  append(entry::Fail{.set = tensor.set, .name = tensor.name, .error = error, .ranks = std::move(ranks)});
  pending_.erase(tensor);
}

void Coordinator::append(Entry entry) {
  if (finished()) return;
  actions_.entries.push_back(std::move(entry));
  ++log_size_;
}

TensorRef Coordinator::refer(const PendingTensor& tensor) {
  if (tensor.id != kNoId) {
    ids_.used(tensor.id);
    return {.id = tensor.id};
  }
  TensorRef ref{.name = tensor.name, .first_dims = tensor.logged_dims()};
  if (!tensor.excused.empty()) ref.signature = tensor.signature;
  // Else not known to all, or never the same again.
  if (tensor.excused.empty() && tensor.signature.kind != OpKind::kJoin) {
    ref.id =
        ids_.give({.set = tensor.set, .name = tensor.name, .signature = tensor.signature, .first_dims = ref.first_dims},
                  {.index = log_size_, .sets = sets_, .pending = pending_});
  }
  return ref;
}

void Coordinator::append_ready(std::span<const int> busy, bool hold) {
  std::vector<PendingTensor*> go;
  std::vector<PendingTensor*> stay;
  std::vector<FusionCandidate> candidates;
  for (PendingTensor* tensor : ready_) {
    const bool held = hold || std::find(busy.begin(), busy.end(), tensor->set) != busy.end();
    (held ? stay : go).push_back(tensor);
    if (!held) candidates.push_back({.set = tensor->set, .signature = &tensor->signature});
  }
  ready_ = std::move(stay);
  if (go.empty()) return;
  for (const auto& batch : plan_fusion(candidates, {.bytes = options_.fusion_threshold})) {
    entry::Run run{.set = go[batch.front()]->set};
    for (const std::size_t i : batch) run.tensors.push_back(refer(*go[i]));
    if (auto displaced = ids_.take_displaced(); !displaced.empty()) append(entry::Evict{.ids = std::move(displaced)});
    append(std::move(run));
  }
  for (const PendingTensor* tensor : go) pending_.erase(*tensor);
}

Actions Coordinator::act(std::span<const int> busy, bool hold) {
  if (!finished()) {
    if (!ready_.empty()) append_ready(busy, hold);
    run_calls();
    report_went_on();
    // Here, for a rank that has left is missed by others only when the call that it was in has ended.
    if (left_count_ > 0) tick_calls(TimePoint{});
    if (drained_.size() == left_.size()) {
      append(entry::Shutdown{});
      shut_down_ = true;
    }
  }
  if (!actions_.abort.ok()) dead_ = true;
  return std::exchange(actions_, {});
}

// --- calls that ranks make together ---

void Coordinator::called(int rank, Call call, TimePoint now, const Status& refused) {
  if (finished()) return;
  std::vector<int> takers = takers_of(call);
  const bool takes_part = takers.empty() || std::find(takers.begin(), takers.end(), rank) != takers.end();
  if (!takes_part || (call.members_only && !are_ranks(takers, options_.world_size))) {
    return protocol_error(rank, describe(call) + ", of which it is no member");
  }
  look_later(now);
  calls_.add(rank, std::move(call), std::move(takers), now, refused);
}

// Who makes the call together; empty: all ranks.
std::vector<int> Coordinator::takers_of(const Call& call) const {
  if (call.kind == Call::Kind::kAddSet && call.members_only) return call.ranks;
  if (call.kind == Call::Kind::kRemoveSet && members_only_.contains(call.set)) return sets_.at(call.set);
  return {};
}

void Coordinator::run_calls() {
  while (!finished()) {
    auto call = calls_.take(options_.hosts);
    if (!call) return;
    if (call->refused.ok()) {
      start_call(*std::move(call));
    } else {
      end_call(*call, call->refused);
    }
  }
}

void Coordinator::start_call(CallBoard::Next call) {
  switch (call.call.kind) {
    case Call::Kind::kAddSet:
      return add_set(std::move(call));
    case Call::Kind::kRemoveSet:
      return remove_set(call);
    case Call::Kind::kStartTimeline:
    case Call::Kind::kStopTimeline:
      append(entry::Timeline{.path = call.call.path});
      return end_call(call, {});
  }
}

void Coordinator::add_set(CallBoard::Next call) {
  const std::vector<int> ranks = call.call.ranks;
  if (!are_ranks(ranks, options_.world_size)) {
    return end_call(
        call, Status(Errc::kInvalidArgument, describe(call.call) + " is refused: name each rank once, from 0 to " +
                                                 std::to_string(options_.world_size - 1)));
  }
  const int set = next_set_.fetch_add(1, std::memory_order_relaxed);
  const bool members_only = call.call.members_only;
  const bool apart = call.call.apart;
  sets_[set] = ranks;
  if (members_only) members_only_.insert(set);
  making_[set] = {.call = std::move(call), .missing = ranks.size(), .reported = std::vector<bool>(ranks.size())};
  append(entry::MakeSet{.set = set, .ranks = ranks, .members_only = members_only, .apart = apart});
}

void Coordinator::set_made(int rank, int set, const Status& result) {
  if (finished()) return;
  const auto member = position(rank, set);
  const auto found = making_.find(set);
  if (found == making_.end() || !member || found->second.reported[*member]) {
    return protocol_error(rank, "the outcome of making process set " + std::to_string(set) + " which it was not asked");
  }
  MakingSet& making = found->second;
  making.reported[*member] = true;
  if (making.failed.ok() && !result.ok()) {
    making.failed = result.with_context("process set " + std::to_string(set) + " could not be made on " +
                                        describe_ranks(std::span(&rank, 1), options_.hosts));
  }
  if (--making.missing > 0) return;
  const MakingSet made = std::move(making);
  making_.erase(found);
  if (!made.failed.ok()) {
    sets_.erase(set);
    members_only_.erase(set);
  }
  end_call(made.call, made.failed, set);
}

void Coordinator::remove_set(const CallBoard::Next& call) {
  const int set = call.call.set;
  if (set == 0 || !sets_.contains(set)) {
    return end_call(call,
                    Status(Errc::kInvalidArgument, "process set " + std::to_string(set) +
                                                       " cannot be removed: it is the global one or does not exist"));
  }
  append_ready({});  // what was ready before the removal still runs
  for (PendingTensor* tensor : pending_.waiting()) {
    if (tensor->set != set) continue;
    const auto missing = tensor->missing_ranks();
    fail(*tensor, Status(ErrorInfo{.code = Errc::kInvalidArgument,
                                   .message = "tensor '" + tensor->name + "': its process set was removed before " +
                                              describe_ranks(missing, options_.hosts) +
                                              " submitted it; submit it on all members first",
                                   .tensor = tensor->name,
                                   .ranks = missing}));
  }
  std::vector<PendingTensor*> grouped;  // complete, but the rest of the group never came
  for (auto group = groups_.begin(); group != groups_.end();) {
    const bool drop = group->first.first == set;
    if (drop) grouped.insert(grouped.end(), group->second.complete.begin(), group->second.complete.end());
    group = drop ? groups_.erase(group) : std::next(group);
  }
  for (PendingTensor* tensor : grouped) {
    fail(*tensor, Status(Errc::kInvalidArgument, "tensor '" + tensor->name + "': its process set was removed before " +
                                                     "the rest of its group was submitted on all members"));
  }
  ids_.erase_set(set);
  joined_.forget(set);
  sets_.erase(set);
  members_only_.erase(set);
  append(entry::RemoveSet{.set = set});
  end_call(call, {}, set);
}

void Coordinator::end_call(const CallBoard::Next& call, const Status& result, int set) {
  append(entry::EndCall{.result = result, .set = set, .ranks = call.ranks, .apart = call.call.apart});
  calls_.end(call.number);
}

void Coordinator::end_timeline() { append(entry::Timeline{}); }

// --- leaving and dying ---

void Coordinator::leave(int rank) {
  if (finished()) return;
  if (left_[static_cast<std::size_t>(rank)]) return protocol_error(rank, "that it leaves, twice");
  left_[static_cast<std::size_t>(rank)] = true;
  ++left_count_;
  append(entry::Left{.rank = rank});
  for (PendingTensor* tensor : pending_.waiting()) {
    check_left(*tensor);
    if (finished()) return;
  }
}

void Coordinator::drained(int rank) {
  if (finished()) return;
  if (!left_[static_cast<std::size_t>(rank)] || !drained_.insert(rank).second) {
    protocol_error(rank, "that nothing is in flight there any more, before it left or twice");
  }
}

// A rank that left submits nothing more, so what waits for it fails now. If nobody is left to care, only the tensor.
void Coordinator::check_left(PendingTensor& tensor) {
  const auto has_left = [&](int rank) { return left_[static_cast<std::size_t>(rank)]; };
  std::vector<int> gone = tensor.missing_ranks();
  std::erase_if(gone, [&](int rank) { return !has_left(rank); });
  if (gone.empty()) return;
  const auto waiting = tensor.submitted_ranks();
  ErrorInfo error{.code = Errc::kRankLeft, .tensor = tensor.name, .ranks = gone, .cause = "left", .usable = false};
  error.host = options_.hosts.at(static_cast<std::size_t>(gone.front()));
  error.message = std::string(name_of(tensor.signature.kind)) + " '" + tensor.name +
                  "' can never run: " + describe_ranks(gone, options_.hosts) +
                  " left the job without submitting it; submit the same tensors on every rank before shutdown";
  if (std::all_of(waiting.begin(), waiting.end(), has_left)) return fail(tensor, Status(std::move(error)));
  abort(std::move(error));
}

void Coordinator::died(const Status& why) {
  dead_ = true;
  actions_ = {.abort = why};
}

void Coordinator::protocol_error(int rank, const std::string& what) {
  abort({.code = Errc::kProtocol,
         .message = describe_ranks(std::span(&rank, 1), options_.hosts) + " sent " + what +
                    ", which a sound member never does; this is a bug in distrun",
         .ranks = {rank},
         .usable = false});
}

void Coordinator::abort(ErrorInfo error) {
  if (!finished()) actions_.abort = Status(std::move(error));
}

}  // namespace distrun::engine
