#include "runtime/engine/agreement/call_agreement.h"

#include <algorithm>
#include <utility>

#include "runtime/engine/readiness/mismatch.h"

namespace distrun::engine {
namespace {

net::RankWait wait_of(const CallBoard::Waiting& waiting) {
  return {.what = waiting.what, .waiting = waiting.made, .missing = waiting.missing};
}

}  // namespace

CallAgreement::CallAgreement(const StallLimits& limits, Membership& members, TensorAgreement& tensors,
                             Decisions& decisions)
    : limits_(limits), members_(members), tensors_(tensors), decisions_(decisions), calls_(members.world_size()) {}

void CallAgreement::called(int rank, Call call, TimePoint now, const Status& refused) {
  std::vector<int> takers = takers_of(call);
  const bool takes_part = takers.empty() || std::find(takers.begin(), takers.end(), rank) != takers.end();
  if (!takes_part || (call.members_only && !members_.are_ranks(takers))) {
    return decisions_.protocol_error(rank, members_.hosts(), "the call " + describe(call) + " without being a member");
  }
  calls_.add(rank, std::move(call), std::move(takers), now, refused);
}

// Returns the ranks that make the call together; empty: all ranks.
std::vector<int> CallAgreement::takers_of(const Call& call) const {
  if (call.kind == Call::Kind::kAddSet && call.members_only) return call.ranks;
  if (call.kind == Call::Kind::kRemoveSet && members_.is_members_only(call.set)) return members_.members(call.set);
  return {};
}

void CallAgreement::run() {
  while (!decisions_.finished()) {
    auto call = calls_.take(members_.hosts());
    if (!call) return;
    if (call->refused.ok()) {
      start_call(*std::move(call));
    } else {
      end_call(*call, call->refused);
    }
  }
}

void CallAgreement::start_call(CallBoard::Next call) {
  switch (call.call.kind) {
    case Call::Kind::kAddSet:
      return add_set(std::move(call));
    case Call::Kind::kRemoveSet:
      return remove_set(call);
    case Call::Kind::kStartTimeline:
    case Call::Kind::kStopTimeline:
      decisions_.append(entry::Timeline{.path = call.call.path});
      return end_call(call, {});
  }
}

void CallAgreement::add_set(CallBoard::Next call) {
  const std::vector<int> ranks = call.call.ranks;
  if (!members_.are_ranks(ranks)) {
    return end_call(
        call, Status(Errc::kInvalidArgument, describe(call.call) + " is not valid: name each rank once, from 0 to " +
                                                 std::to_string(members_.world_size() - 1)));
  }
  const bool members_only = call.call.members_only;
  const bool unordered = call.call.unordered;
  const int set = members_.add_set(ranks, members_only);
  making_[set] = {.call = std::move(call), .missing = ranks.size(), .reported = std::vector<bool>(ranks.size())};
  decisions_.append(entry::MakeSet{.set = set, .ranks = ranks, .members_only = members_only, .unordered = unordered});
}

void CallAgreement::set_made(int rank, int set, const Status& result) {
  const auto member = members_.position(rank, set);
  const auto found = making_.find(set);
  if (found == making_.end() || !member || found->second.reported[*member]) {
    return decisions_.protocol_error(
        rank, members_.hosts(), "a result for process set " + std::to_string(set) + " that rank 0 did not ask for");
  }
  MakingSet& making = found->second;
  making.reported[*member] = true;
  if (making.failed.ok() && !result.ok()) {
    making.failed = result.with_context("process set " + std::to_string(set) + " cannot be made on " +
                                        describe_ranks(std::span(&rank, 1), members_.hosts()));
  }
  if (--making.missing > 0) return;
  const MakingSet made = std::move(making);
  making_.erase(found);
  if (!made.failed.ok()) members_.remove_set(set);
  end_call(made.call, made.failed, set);
}

void CallAgreement::remove_set(const CallBoard::Next& call) {
  const int set = call.call.set;
  if (set == 0 || !members_.has_set(set)) {
    return end_call(call,
                    Status(Errc::kInvalidArgument, "process set " + std::to_string(set) +
                                                       " cannot be removed: it is the global one or does not exist"));
  }
  tensors_.remove_set(set);
  members_.remove_set(set);
  decisions_.append(entry::RemoveSet{.set = set});
  end_call(call, {}, set);
}

void CallAgreement::end_call(const CallBoard::Next& call, const Status& result, int set) {
  decisions_.append(
      entry::EndCall{.result = result, .set = set, .ranks = call.ranks, .unordered = call.call.unordered});
  calls_.end(call.number);
  if (std::exchange(reported_, false)) decisions_.end_waits();
}

// --- limits of time ---

// Reports all late calls together when one of them is due.
void CallAgreement::tick(TimePoint now) {
  std::string late;
  std::vector<net::RankWait> fresh;
  std::vector<std::uint64_t> numbers;
  bool due = false;
  for (const CallBoard::Waiting& waiting : calls_.waiting()) {
    end_unfinishable(waiting, now);
    if (decisions_.finished()) return;
    if (fail_joined(waiting, now)) continue;
    if (now - waiting.counts < limits_.warning) continue;
    due = due || now >= limits_.next_report(waiting.counts, waiting.reported);
    numbers.push_back(waiting.number);
    if (waiting.reported == waiting.counts) fresh.push_back(wait_of(waiting));
    late += (late.empty() ? "" : "; ") + std::string("waiting for ") +
            describe_ranks(waiting.missing, members_.hosts()) + ": " + waiting.what + ", " +
            seconds_text(now - waiting.since) + " after the first rank";
  }
  if (!due) return;
  for (const std::uint64_t number : numbers) calls_.note_reported(number, now);
  reported_ = reported_ || !fresh.empty();
  decisions_.report(std::move(fresh));
  decisions_.warn(std::move(late));
}

std::vector<net::RankWait> CallAgreement::waits() const {
  std::vector<net::RankWait> waits;
  for (const CallBoard::Waiting& waiting : calls_.waiting()) waits.push_back(wait_of(waiting));
  return waits;
}

// Fails a call if the missing ranks are in a join that waits for the calling ranks. It does so only after a while,
// because other threads of the missing ranks may still make the call.
bool CallAgreement::fail_joined(const CallBoard::Waiting& waiting, TimePoint now) {
  const TimePoint since = std::max(waiting.since, tensors_.last_join());
  if (now - since < limits_.wait_limit()) return false;
  const auto in_join = [&](int rank) { return tensors_.waits_in_join(rank, waiting.made); };
  if (waiting.unordered || !std::all_of(waiting.missing.begin(), waiting.missing.end(), in_join)) return false;
  calls_.refuse(
      waiting.number,
      Status(ErrorInfo{
          .code = Errc::kInvalidArgument,
          .message =
              waiting.what + " waits for " + describe_ranks(waiting.missing, members_.hosts()) +
              ", which called join() and wait for the other ranks. Make the same calls on every rank before any " +
              "of them calls join()",
          .ranks = waiting.missing}));
  return true;
}

// Ends the job if a call waits for a rank that has left, or has waited too long.
void CallAgreement::end_unfinishable(const CallBoard::Waiting& waiting, TimePoint now) {
  const std::vector<int> gone = members_.left_of(waiting.missing);
  const bool timeout = limits_.passed(waiting.since, now);
  if (gone.empty() && !timeout) return;
  const auto& ranks = gone.empty() ? waiting.missing : gone;
  if (waiting.reported == waiting.counts) decisions_.report({wait_of(waiting)});
  decisions_.abort({.code = gone.empty() ? Errc::kTimeout : Errc::kRankLeft,
                    .message = waiting.what + " cannot end: " + describe_ranks(ranks, members_.hosts()) +
                               (gone.empty() ? " did not take part within --stall-shutdown-time" : " left the job") +
                               ". Make the same calls on every rank that takes part",
                    .ranks = ranks,
                    .host = members_.hosts().at(static_cast<std::size_t>(ranks.front())),
                    .cause = gone.empty() ? "stalled" : "left",
                    .usable = false});
}

void CallAgreement::look(NextLook& next) const {
  for (const CallBoard::Waiting& waiting : calls_.waiting()) {
    next.consider(waiting.since, limits_.next_report(waiting.counts, waiting.reported));
  }
}

}  // namespace distrun::engine
