#include "runtime/engine/agreement/tensor_agreement.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/engine/readiness/fusion.h"
#include "runtime/engine/readiness/mismatch.h"

namespace distrun::engine {
namespace {

Status of_group(const PendingTensor& tensor, const Status& why) {
  return why.with_context("tensor '" + tensor.name + "' runs only together with its group");
}

// A join may wait as long as the other ranks have data.
bool can_stall(const PendingTensor& tensor) { return !tensor.complete() && tensor.signature.kind != OpKind::kJoin; }

bool is_reported(const PendingTensor& tensor) { return tensor.reported != tensor.first; }

}  // namespace

TensorAgreement::TensorAgreement(const Options& options, const Membership& members, Decisions& decisions)
    : fusion_threshold_(options.fusion_threshold),
      limits_(options.limits),
      members_(members),
      decisions_(decisions),
      ids_(options.cache_capacity, members.world_size()) {}

void TensorAgreement::submitted(int rank, const message::Submitted& request, TimePoint now) {
  const auto& shape = request.signature.shape;
  add(rank, {.set = request.set,
             .name = request.name,
             .signature = &request.signature,
             .first_dim = shape.empty() ? 0 : shape.front(),
             .splits = request.signature.splits,
             .refusal = request.refusal,
             .now = now});
}

void TensorAgreement::ready(int rank, TensorId id, TimePoint now) {
  const auto [record, evicted] = ids_.find(id);
  if (record == nullptr)
    return decisions_.protocol_error(rank, members_.hosts(), "the unknown tensor id " + std::to_string(id));
  SubmissionEvent event{.set = record->set,
                        .name = record->name,
                        .signature = &record->signature,
                        .id = evicted ? kNoId : id,
                        .now = now};
  if (const auto member = members_.position(rank, record->set)) {
    const std::span<const std::int64_t> dims = record->first_dims;
    const std::size_t members = members_.members(record->set).size();
    if (dims.size() > members) {  // these rows act as its splits: rows that are not sent are no part of the agreement
      event.splits = dims.subspan(*member * members, members);
      event.first_dim = std::accumulate(event.splits.begin(), event.splits.end(), std::int64_t{0});
    } else if (!dims.empty()) {
      event.first_dim = dims[*member];
    }
  }
  add(rank, event);
}

void TensorAgreement::add(int rank, SubmissionEvent event) {
  if (decisions_.finished()) return;
  const auto member = members_.position(rank, event.set);
  if (!member || members_.has_left(rank)) {
    return decisions_.protocol_error(rank, members_.hosts(),
                                     "tensor '" + std::string(event.name) + "' for a process set without this rank");
  }
  // A join must never fail as a tensor does: it would be freed while this code still uses it.
  const bool joins = event.signature->kind == OpKind::kJoin;
  if (joins != (event.name == kJoinName) || (joins && event.signature->group.size != 0)) {
    return decisions_.protocol_error(rank, members_.hosts(),
                                     "tensor '" + std::string(event.name) + "' as a join, or a join as a tensor");
  }
  event.member = *member;
  event.members = &members_.members(event.set);
  PendingTensor* tensor = pending_.add(event);
  if (tensor == nullptr)
    return decisions_.protocol_error(rank, members_.hosts(), "tensor '" + std::string(event.name) + "' twice");
  if (joins) {
    join(rank, event.set, event.now);
  } else if (tensor->is_new()) {
    count_joined(*tensor, event.now);
  }
  if (tensor->complete()) {
    complete(*tensor, event.now);
  } else if (cannot_finish(*tensor)) {
    fail_unfinishable();
  } else if (members_.any_left()) {
    check_left(*tensor);
  }
}

// join() excuses the ranks that join later.
void TensorAgreement::count_joined(PendingTensor& tensor, TimePoint now) {
  for (const int rank : joined_.ranks(tensor.set)) {
    const std::size_t member = *members_.position(rank, tensor.set);
    if (!tensor.has(member)) Readiness::mark_joined(tensor, member, now);
  }
}

// From now on nothing of the set waits for this rank, until all members have joined.
void TensorAgreement::join(int rank, int set, TimePoint now) {
  joined_.join(set, rank);
  last_join_ = now;
  const std::size_t member = *members_.position(rank, set);
  // Excuses the rank from all tensors before it completes any. An error of one tensor fails the tensors of its groups,
  // and the excused ranks decide which tensors those are.
  std::vector<std::string> whole;
  for (PendingTensor* tensor : pending_.waiting()) {
    if (tensor->set != set || tensor->signature.kind == OpKind::kJoin) continue;
    if (!tensor->has(member)) Readiness::mark_joined(*tensor, member, now);
    if (tensor->complete()) whole.push_back(tensor->name);
  }
  for (const std::string& name : whole) {
    if (PendingTensor* tensor = pending_.find(set, name)) complete(*tensor, now);
  }
  fail_unfinishable();
}

void TensorAgreement::complete(PendingTensor& tensor, TimePoint now) {
  if (tensor.signature.kind == OpKind::kJoin) {
    tensor.first_dims = {joined_.ranks(tensor.set).back()};
    joined_.forget(tensor.set);
  }
  Status result = verdict(tensor, members_.hosts());
  if (result.ok()) result = check_joined(tensor, members_.hosts());
  if (!result.ok()) {
    fail_groups_of(tensor, result);
    fail(tensor, result);
    return fail_unfinishable();
  }
  if (tensor.signature.group.size != 0) return complete_in_group(tensor, now);
  if (is_reported(tensor)) resumed_.add(tensor, now);
  ready_.push_back(&tensor);
}

void TensorAgreement::complete_in_group(PendingTensor& tensor, TimePoint now) {
  const GroupKey key{tensor.set, tensor.signature.group.digest};
  const std::uint32_t size = tensor.signature.group.size;  // fail() frees the tensor
  Group& group = groups_[key];
  ++group.seen;
  if (group.failed.ok()) {
    if (is_reported(tensor)) resumed_.add(tensor, now);
    group.complete.push_back(&tensor);
  } else {
    fail(tensor, of_group(tensor, group.failed));
  }
  if (group.seen < size) return;
  ready_.insert(ready_.end(), group.complete.begin(), group.complete.end());
  groups_.erase(key);
}

// Some members disagree on `tensor`, so every tensor that shares a group with it on any member fails too.
void TensorAgreement::fail_groups_of(const PendingTensor& tensor, const Status& why) {
  // By digest of a group: the members that gave another group. They will not submit the tensors that only this group
  // has.
  std::map<std::uint64_t, std::set<std::size_t>> elsewhere{{tensor.signature.group.digest, {}}};
  std::map<std::uint64_t, const GroupTag*> tags{{tensor.signature.group.digest, &tensor.signature.group}};
  for (const auto& [member, signature] : tensor.differing) tags.emplace(signature.group.digest, &signature.group);
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

// Returns the error of the tensor's group if the tensor waits only for members that have another group instead.
std::optional<Status> TensorAgreement::cannot_finish(const PendingTensor& tensor) const {
  if (tensor.signature.group.size == 0 || tensor.complete()) return std::nullopt;
  const Status* why = nullptr;
  const auto never_ends = [&](const GroupTag& tag) {
    const auto found = groups_.find({tensor.set, tag.digest});
    if (tag.size == 0 || found == groups_.end() || found->second.failed.ok()) return false;
    if (why == nullptr) why = &found->second.failed;
    for (std::size_t member = 0; member < tensor.members->size(); ++member) {
      if (!tensor.has(member) && !found->second.elsewhere.contains(member)) return false;
    }
    return true;
  };
  const bool all =
      never_ends(tensor.signature.group) && std::all_of(tensor.differing.begin(), tensor.differing.end(),
                                                        [&](const auto& one) { return never_ends(one.second.group); });
  return all ? std::optional(*why) : std::nullopt;
}

// Repeats until no such tensor is left. Each failure shows more about the groups of the members, and earlier tensors
// may depend on that.
void TensorAgreement::fail_unfinishable() {
  for (bool again = true; again;) {
    again = false;
    for (PendingTensor* tensor : pending_.waiting()) {
      const auto why = cannot_finish(*tensor);
      if (!why) continue;
      fail_with_group(*tensor, *why);
      again = true;
    }
  }
}

void TensorAgreement::fail_with_group(PendingTensor& tensor, const Status& why) {
  fail_groups_of(tensor, why);
  fail(tensor, of_group(tensor, why));
}

void TensorAgreement::fail(PendingTensor& tensor, const Status& error) {
  std::vector<int> ranks;
  if (!tensor.complete()) ranks = tensor.submitted_ranks();
  decisions_.append(entry::Fail{.set = tensor.set, .name = tensor.name, .error = error, .ranks = std::move(ranks)});
  pending_.erase(tensor);
}

TensorRef TensorAgreement::refer(const PendingTensor& tensor) {
  if (tensor.id != kNoId) {
    ids_.used(tensor.id);
    return {.id = tensor.id};
  }
  TensorRef ref{.name = tensor.name, .first_dims = tensor.logged_dims()};
  if (!tensor.joined_ranks.empty()) ref.signature = tensor.signature;
  // Otherwise the tensor gets no id. With excused ranks, not all members know it. The rows of a join are never the same
  // again.
  if (tensor.joined_ranks.empty() && tensor.signature.kind != OpKind::kJoin) {
    ref.id =
        ids_.give({.set = tensor.set, .name = tensor.name, .signature = tensor.signature, .first_dims = ref.first_dims},
                  {.index = decisions_.log_size(), .sets = members_.sets(), .pending = pending_});
  }
  return ref;
}

void TensorAgreement::append_ready(std::span<const int> busy, bool hold) {
  if (ready_.empty()) return;
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
  for (const auto& batch : plan_fusion(candidates, {.bytes = fusion_threshold_})) {
    entry::Run run{.set = go[batch.front()]->set};
    for (const std::size_t i : batch) run.tensors.push_back(refer(*go[i]));
    if (auto displaced = ids_.take_displaced(); !displaced.empty())
      decisions_.append(entry::Evict{.ids = std::move(displaced)});
    decisions_.append(std::move(run));
  }
  for (const PendingTensor* tensor : go) pending_.erase(*tensor);
}

void TensorAgreement::remove_set(int set) {
  append_ready({});  // tensors that were ready before the removal still run
  for (PendingTensor* tensor : pending_.waiting()) {
    if (tensor->set != set) continue;
    const auto missing = tensor->missing_ranks();
    fail(*tensor, Status(ErrorInfo{.code = Errc::kInvalidArgument,
                                   .message = "tensor '" + tensor->name + "': its process set was removed before " +
                                              describe_ranks(missing, members_.hosts()) +
                                              " submitted it. Submit it on all members first",
                                   .tensor = tensor->name,
                                   .ranks = missing}));
  }
  std::vector<PendingTensor*> grouped;  // complete, but the rest of their group never came
  for (auto group = groups_.begin(); group != groups_.end();) {
    const bool drop = group->first.first == set;
    if (drop) grouped.insert(grouped.end(), group->second.complete.begin(), group->second.complete.end());
    group = drop ? groups_.erase(group) : std::next(group);
  }
  for (PendingTensor* tensor : grouped) {
    fail(*tensor, Status(Errc::kInvalidArgument,
                         "tensor '" + tensor->name + "': its process set was removed before " +
                             "all members submitted the rest of its group. Submit the whole group first"));
  }
  ids_.erase_set(set);
  joined_.forget(set);
}

void TensorAgreement::left() {
  for (PendingTensor* tensor : pending_.waiting()) {
    check_left(*tensor);
    if (decisions_.finished()) return;
  }
}

// A rank that has left submits nothing more, so the tensors that wait for it fail now. If all ranks that submitted it
// have left too, only the tensor fails, and not the job.
void TensorAgreement::check_left(PendingTensor& tensor) {
  const std::vector<int> gone = members_.left_of(tensor.missing_ranks());
  if (gone.empty()) return;
  const auto waiting = tensor.submitted_ranks();
  ErrorInfo error{.code = Errc::kRankLeft, .tensor = tensor.name, .ranks = gone, .cause = "left", .usable = false};
  error.host = members_.hosts().at(static_cast<std::size_t>(gone.front()));
  error.message = std::string(name_of(tensor.signature.kind)) + " '" + tensor.name +
                  "' can never run: " + describe_ranks(gone, members_.hosts()) +
                  " left the job without submitting it. Submit the same tensors on every rank before shutdown";
  if (members_.left_of(waiting).size() == waiting.size()) return fail(tensor, Status(std::move(error)));
  decisions_.abort(std::move(error));
}

// --- limits of time ---

// Ranks may submit different tensors under one name, and in different orders. They may not wait for each other's tensor
// for as long as a warning takes.
void TensorAgreement::fail_rivals(TimePoint now) {
  // Collects all of them first. The rest of a group would have no rival any more, and would wait for ever.
  std::vector<std::pair<PendingTensor*, Status>> failed;
  for (const Rivals& one : rivals_among(pending_.waiting(), limits_.wait_limit(), now)) {
    failed.emplace_back(one.tensor, rival_error(*one.tensor, *one.rival, members_.hosts()));
    note_other_group(*one.tensor, *one.rival);
  }
  if (failed.empty()) return;
  for (const auto& [tensor, error] : failed) {
    fail_groups_of(*tensor, error);
    fail(*tensor, error);
  }
  fail_unfinishable();
}

// Notes that the rival's ranks have another group instead. This covers tensors of the group that have not waited as
// long or are not submitted yet.
void TensorAgreement::note_other_group(const PendingTensor& tensor, const PendingTensor& rival) {
  const auto of_rival = [&](const GroupTag& tag) {
    if (tag.size == 0) return;
    Group& group = groups_[{tensor.set, tag.digest}];
    for (std::size_t member = 0; member < tensor.members->size(); ++member) {
      if (rival.has(member)) group.elsewhere.insert(member);
    }
  };
  of_rival(tensor.signature.group);
  for (const auto& [member, signature] : tensor.differing) of_rival(signature.group);
}

void TensorAgreement::tick(TimePoint now) {
  fail_rivals(now);
  std::vector<const PendingTensor*> stalled;
  std::vector<const PendingTensor*> fresh;
  for (PendingTensor* tensor : pending_.waiting()) {
    if (!can_stall(*tensor)) continue;
    if (limits_.passed(tensor->first, now)) {
      // All waits: a rank that this tensor does not miss may be the one that went another way.
      std::vector<const PendingTensor*> all;
      for (const PendingTensor* other : pending_.waiting()) {
        if (can_stall(*other) && !is_reported(*other)) all.push_back(other);
      }
      decisions_.report(waits_of(all));
      return decisions_.abort(stall_error(*tensor, members_.hosts(), now));
    }
    if (now < limits_.next_report(tensor->first, tensor->reported)) continue;
    if (!is_reported(*tensor)) fresh.push_back(tensor);
    tensor->reported = now;
    stalled.push_back(tensor);
  }
  decisions_.report(waits_of(fresh));
  if (stalled.empty()) return;
  if (!resumed_.empty()) decisions_.warn(resumed_.take_text());
  decisions_.warn(stall_text(stalled, members_.hosts(), now));
}

// Writes one line for all reported tensors that now run, once no reported tensor waits any more.
void TensorAgreement::report_resumed() {
  if (resumed_.empty()) return;
  bool waits = false;
  pending_.for_each([&](const PendingTensor& tensor) { waits = waits || (can_stall(tensor) && is_reported(tensor)); });
  if (waits) return;
  decisions_.end_waits();
  decisions_.warn(resumed_.take_text());
}

std::vector<net::RankWait> TensorAgreement::waits() {
  std::vector<const PendingTensor*> waiting;
  for (const PendingTensor* tensor : pending_.waiting()) waiting.push_back(tensor);
  return waits_of(waiting);
}

void TensorAgreement::look(NextLook& next) const {
  pending_.for_each([&](const PendingTensor& tensor) {
    if (can_stall(tensor)) next.consider(tensor.first, limits_.next_report(tensor.first, tensor.reported));
  });
}

void TensorAgreement::suspended(const Suspension& gap) {
  for (PendingTensor* tensor : pending_.waiting()) {
    tensor->first = gap.moved(tensor->first);
    tensor->reported = gap.moved(tensor->reported);
  }
  last_join_ = gap.moved(last_join_);
}

}  // namespace distrun::engine
