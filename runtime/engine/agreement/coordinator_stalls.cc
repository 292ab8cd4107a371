// The coordinator's part that watches what waits: reports, and limits of time.
#include <algorithm>
#include <utility>

#include "runtime/engine/agreement/coordinator.h"
#include "runtime/engine/readiness/mismatch.h"
#include "runtime/engine/readiness/stall.h"

namespace distrun::engine {
namespace {

// So long may ranks wait for one another before it is an error, where no warning is asked for.
constexpr Duration kPatience = std::chrono::seconds(10);

// Who has joined waits for as long as the others have data.
bool can_stall(const PendingTensor& tensor) { return !tensor.complete() && tensor.signature.kind != OpKind::kJoin; }

bool is_reported(const PendingTensor& tensor) { return tensor.reported != tensor.first; }

}  // namespace

TimePoint Coordinator::next_report(TimePoint since, TimePoint reported) const {
  const Duration warning = options_.stall_warning;
  return warning == Duration::zero() ? TimePoint::max() : next_warning(since, reported, warning);
}

Duration Coordinator::patience() const {
  return options_.stall_warning == Duration::zero() ? kPatience : options_.stall_warning;
}

// What has come may complete a circle of ranks that wait for one another, of which the oldest is reported already and
// will not be for long. So circles are looked for as often as when reports came one warning's time after the other.
void Coordinator::look_later(TimePoint now) {
  news_at_ = now;
  if (!look_at_) look_at_ = now + patience();
}

std::optional<TimePoint> Coordinator::next_tick() const {
  if (finished()) return std::nullopt;
  bool waits = false;
  TimePoint next = TimePoint::max();
  const auto consider = [&](TimePoint since, TimePoint report) {
    waits = true;
    next = std::min(next, report);
    if (options_.stall_shutdown > Duration::zero()) next = std::min(next, since + options_.stall_shutdown);
  };
  pending_.for_each([&](const PendingTensor& tensor) {
    if (can_stall(tensor)) consider(tensor.first, next_report(tensor.first, tensor.reported));
  });
  for (const CallBoard::Waiting& waiting : calls_.waiting()) {
    consider(waiting.since, next_report(waiting.counts, waiting.told));
  }
  if (waits && look_at_ && next - *look_at_ > patience()) return *look_at_;
  return next == TimePoint::max() ? std::nullopt : std::optional(next);
}

void Coordinator::tick(TimePoint now) {
  if (finished()) return;
  if (look_at_ && *look_at_ <= now) {
    look_at_.reset();
    if (news_at_ + patience() > now) look_at_ = news_at_ + patience();
  }
  tick_tensors(now);
  tick_calls(now);
}

void Coordinator::suspended(const Suspension& gap) {
  for (PendingTensor* tensor : pending_.waiting()) {
    tensor->first = gap.moved(tensor->first);
    tensor->reported = gap.moved(tensor->reported);
  }
  calls_.suspended(gap);
  last_join_ = gap.moved(last_join_);
  news_at_ = gap.moved(news_at_);
  if (look_at_) look_at_ = gap.moved(*look_at_);
}

// Ranks may well submit different things under one name and in another order; but not wait for each other crosswise for
// as long as a warning takes.
void Coordinator::fail_rivals(TimePoint now) {
  // All of them at once: what is left of a group has no rival any more and would wait for ever.
  std::vector<std::pair<PendingTensor*, Status>> failed;
  for (const Rivals& one : rivals_among(pending_.waiting(), patience(), now)) {
    failed.emplace_back(one.tensor, rival_error(*one.tensor, *one.rival, options_.hosts));
    note_other_group(*one.tensor, *one.rival);
  }
  if (failed.empty()) return;
  for (const auto& [tensor, error] : failed) {
    fail_groups_of(*tensor, error);
    fail(*tensor, error);
  }
  fail_hopeless();
}

// For those of the tensor's groups that have not waited as long, or are still to come.
void Coordinator::note_other_group(const PendingTensor& tensor, const PendingTensor& rival) {
  const auto of_rival = [&](const GroupTag& tag) {
    if (tag.size == 0) return;
    Group& group = groups_[{tensor.set, tag.digest}];
    for (std::size_t member = 0; member < tensor.members->size(); ++member) {
      if (rival.has(member)) group.elsewhere.insert(member);
    }
  };
  of_rival(tensor.signature.group);
  for (const auto& [member, signature] : tensor.odd) of_rival(signature.group);
}

void Coordinator::tick_tensors(TimePoint now) {
  fail_rivals(now);
  std::vector<const PendingTensor*> stalled;
  for (PendingTensor* tensor : pending_.waiting()) {
    if (!can_stall(*tensor)) continue;
    if (options_.stall_shutdown > Duration::zero() && now - tensor->first >= options_.stall_shutdown) {
      return abort(stall_error(*tensor, options_.hosts, now));
    }
    if (now < next_report(tensor->first, tensor->reported)) continue;
    tensor->reported = now;
    stalled.push_back(tensor);
  }
  if (stalled.empty()) return;
  if (!went_on_.empty()) actions_.warnings.push_back(went_on_.take_text());
  actions_.warnings.push_back(stall_text(stalled, options_.hosts, now));
}

// What has been reported and goes on is told in one line, when nothing that has been reported waits any more.
void Coordinator::report_went_on() {
  if (went_on_.empty()) return;
  bool waits = false;
  pending_.for_each([&](const PendingTensor& tensor) { waits = waits || (can_stall(tensor) && is_reported(tensor)); });
  if (!waits) actions_.warnings.push_back(went_on_.take_text());
}

// All that are late together, when one of them is due.
void Coordinator::tick_calls(TimePoint now) {
  std::string late;
  std::vector<std::uint64_t> numbers;
  bool due = false;
  for (const CallBoard::Waiting& waiting : calls_.waiting()) {
    end_hopeless(waiting, now);
    if (finished()) return;
    if (fail_joined(waiting, now)) continue;
    if (now - waiting.counts < options_.stall_warning) continue;
    due = due || now >= next_report(waiting.counts, waiting.told);
    numbers.push_back(waiting.number);
    late += (late.empty() ? "" : "; ") + std::string("waiting for ") + describe_ranks(waiting.missing, options_.hosts) +
            ": " + waiting.what + ", " + seconds_text(now - waiting.since) + " after the first rank";
  }
  if (!due) return;
  for (const std::uint64_t number : numbers) calls_.told(number, now);
  actions_.warnings.push_back(std::move(late));
}

// A call that waits for ranks in a join that waits for who has made it. Not at once: other threads of theirs may call.
bool Coordinator::fail_joined(const CallBoard::Waiting& waiting, TimePoint now) {
  const TimePoint since = std::max(waiting.since, last_join_);
  if (now - since < patience()) return false;
  const auto in_join = [&](int rank) { return joined_.waits_for(rank, waiting.made, sets_); };
  if (waiting.apart || !std::all_of(waiting.missing.begin(), waiting.missing.end(), in_join)) return false;
  calls_.refuse(
      waiting.number,
      Status(ErrorInfo{.code = Errc::kInvalidArgument,
                       .message = waiting.what + " waits for " + describe_ranks(waiting.missing, options_.hosts) +
                                  " in join (out of data), which waits for the ranks that call; make the " +
                                  "same calls on every rank before any of them calls join",
                       .ranks = waiting.missing}));
  return true;
}

// A call that waits for a rank which has left, or has waited for too long.
void Coordinator::end_hopeless(const CallBoard::Waiting& waiting, TimePoint now) {
  std::vector<int> gone = waiting.missing;
  std::erase_if(gone, [&](int rank) { return !left_[static_cast<std::size_t>(rank)]; });
  const bool timeout = options_.stall_shutdown > Duration::zero() && now - waiting.since >= options_.stall_shutdown;
  if (gone.empty() && !timeout) return;
  const auto& ranks = gone.empty() ? waiting.missing : gone;
  abort({.code = gone.empty() ? Errc::kTimeout : Errc::kRankLeft,
         .message = waiting.what + " can not end: " + describe_ranks(ranks, options_.hosts) +
                    (gone.empty() ? " did not take part within stall_shutdown_time" : " left the job") +
                    "; make the same calls on every rank that takes part",
         .ranks = ranks,
         .host = options_.hosts.at(static_cast<std::size_t>(ranks.front())),
         .cause = gone.empty() ? "stalled" : "left",
         .usable = false});
}

}  // namespace distrun::engine
