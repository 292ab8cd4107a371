#include "test/sim/oracle.h"

#include <algorithm>

namespace distrun::sim {
namespace {

using engine::Handle;
using std::chrono::seconds;

std::string text_of(const Status& status) { return status.ok() ? "ok" : "'" + status.message() + "'"; }

// True for the end of the job, which fails all operations.
bool is_job_error(const Status& status) { return !status.ok() && !status.info().usable; }

bool has_joins(const Program& program) {
  return std::any_of(program.sets.begin(), program.sets.end(), [](const SetPlan& set) { return !set.behind.empty(); });
}

// Other ranks may be reported before the culprit. One has already removed a set, and the removal waits for the culprit.
// Another cannot join before it has got what it waits for.
bool others_are_missed(const Program& program) {
  return std::any_of(program.calls.begin(), program.calls.end(), [](const CallPlan& call) { return call.early; }) ||
         has_joins(program);
}

}  // namespace

Duration Oracle::wait_limit() const { return seconds(5) + 200 * (scenario_.most_delay + scenario_.most_time); }

// The job may end only for the fault that struck it.
bool Oracle::ended_with_job(const Status& status, const std::string& what) {
  if (!is_job_error(status)) return false;
  if (!struck_ || !is_cause(status)) findings_.add(what + " fails with the job: " + text_of(status));
  return true;
}

void Oracle::names(int culprit, const Status& status, const std::string& what) {
  const auto& ranks = status.info().ranks;
  if (std::find(ranks.begin(), ranks.end(), culprit) != ranks.end()) return;
  findings_.add(what + " does not name rank " + std::to_string(culprit) + ": " + text_of(status));
}

void Oracle::agree(Outcome& outcome, const Status& status, const std::string& what) {
  const std::string message = status.ok() ? "" : status.message();
  if (!outcome.known) {
    outcome.known = true;
    outcome.code = status.code();
    outcome.message = message;
  } else if (outcome.code != status.code() || outcome.message != message) {
    findings_.add(what + " ends with " + text_of(status) + ", on another rank with '" + outcome.message + "'");
  }
}

void Oracle::in_time(TimePoint since, const std::string& what, TimePoint now) {
  if (struck_ || now - since <= wait_limit()) return;
  const auto late = std::chrono::duration_cast<std::chrono::milliseconds>(now - since);
  findings_.add(what + " completes only " + std::to_string(late.count()) + " ms after the last rank's submission");
}

void Oracle::submitted(int slot, int round, TimePoint now) {
  ++submissions_;
  tensors_[{slot, round}].last = now;
}

void Oracle::completed(int rank, int slot, int round, const Handle& handle, TimePoint now) {
  const Status& status = handle.status();
  const Program& program = scenario_.program;
  const Slot& plan = program.slots[static_cast<std::size_t>(slot)];
  const Unit& unit = program.units[static_cast<std::size_t>(plan.unit)];
  const std::string what =
      "tensor '" + plan.first.name + "' of round " + std::to_string(round) + " on rank " + std::to_string(rank);
  if (ended_with_job(status, what)) return;
  Outcome& outcome = tensors_[{slot, round}];
  if (plan.rival < 0) {
    agree(outcome, status, what);
    in_time(std::max(outcome.last, joins_[unit.set].last), what, now);
  }
  const bool cut_off = may_be_cut_off(program, unit) && status.code() == Errc::kInvalidArgument;
  const Errc expected = outcome_of(program, unit, round);
  if (status.code() != expected && !cut_off) {
    findings_.add(what + " ends with " + text_of(status) + ", not with code " +
                  std::to_string(static_cast<int>(expected)));
  }
  const int odd = odd_rank(program, unit, round);
  if (status.code() == expected && !cut_off && odd >= 0) names(odd, status, what);
  if (!status.ok() || expected != Errc::kOk) return;  // an operation with a deviation has no rows to compare
  const auto rows = received_rows(program, slot, round, rank);
  if (!rows.empty() && handle.output().first_dims != rows) {
    findings_.add(what + " does not receive the rows that the members of the set send");
  }
}

void Oracle::join_ended(int rank, int set, const Status& status, int last, TimePoint now) {
  const std::string what = "the join of set " + std::to_string(set) + " on rank " + std::to_string(rank);
  if (ended_with_job(status, what)) return;
  Outcome& outcome = joins_[set];
  if (outcome.known && outcome.value != last) findings_.add(what + " names another last rank than on other ranks");
  outcome.value = last;
  agree(outcome, status, what);
  in_time(outcome.last, what, now);
  const bool cut_off = std::any_of(
      scenario_.program.calls.begin(), scenario_.program.calls.end(),
      [&](const auto& call) { return call.kind == engine::Call::Kind::kRemoveSet && call.set == set && call.early; });
  if (!status.ok() && !cut_off) findings_.add(what + " ends with " + text_of(status));
  const std::vector<int>& ranks = scenario_.program.sets[static_cast<std::size_t>(set)].ranks;
  if (status.ok() && !std::binary_search(ranks.begin(), ranks.end(), last)) {
    findings_.add(what + " says that rank " + std::to_string(last) + " was last, which is none of the set's");
  }
}

void Oracle::called(int call, TimePoint now) { calls_[call].last = now; }

void Oracle::call_ended(int rank, int call, const Status& status, int set, TimePoint now) {
  const CallPlan& plan = scenario_.program.calls[static_cast<std::size_t>(call)];
  const std::string what = "call " + std::to_string(call) + " on rank " + std::to_string(rank);
  if (ended_with_job(status, what)) return;
  const bool adds = plan.kind == engine::Call::Kind::kAddSet;
  const bool broken = adds && scenario_.program.sets[static_cast<std::size_t>(plan.set)].fails_on >= 0;
  const Errc expected = plan.odd >= 0 ? Errc::kMismatch : broken ? Errc::kSystem : Errc::kOk;
  // A culprit that has joined and makes no more calls looks like a rank that waits in its join. If a rank made a wrong
  // call in place of this one, the mistake is found in its next call.
  const bool stands_still =
      (scenario_.fault == Fault::kStall || scenario_.fault == Fault::kFreeze) && has_joins(scenario_.program);
  const bool follows = status.code() == Errc::kInvalidArgument || status.code() == Errc::kMismatch;
  if (struck_ && stands_still && follows && status.code() != expected) return;
  Outcome& outcome = calls_[call];
  if (outcome.known && outcome.value != set) findings_.add(what + " gives another set than on other ranks");
  outcome.value = set;
  agree(outcome, status, what);
  in_time(outcome.last, what, now);
  if (status.code() != expected) findings_.add(what + " ends with " + text_of(status));
  if (status.code() == Errc::kMismatch && plan.odd >= 0) names(plan.odd, status, what);
}

void Oracle::fault_struck(TimePoint now, bool all_well_possible, bool some_had_left) {
  struck_ = true;
  struck_at_ = now;
  all_well_possible_ = all_well_possible;
  some_had_left_ = some_had_left;
}

// Whether `outcome` is the error that this fault must cause, and names the culprit.
bool Oracle::is_cause(const Status& outcome) const {
  const auto one_of = [&](std::initializer_list<Errc> codes) {
    return std::find(codes.begin(), codes.end(), outcome.code()) != codes.end();
  };
  const auto& ranks = outcome.info().ranks;
  const bool named = std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
    return std::find(scenario_.culprits.begin(), scenario_.culprits.end(), rank) != scenario_.culprits.end();
  });
  switch (scenario_.fault) {
    case Fault::kNone:
      return false;
    case Fault::kDeath:
    case Fault::kDeaths:
      return named && (outcome.code() == Errc::kRankLost || (some_had_left_ && outcome.code() == Errc::kRankLeft));
    case Fault::kEarlyLeave:
      return named && outcome.code() == Errc::kRankLeft;
    case Fault::kEarlyExit:
      return named && one_of({Errc::kRankLost, Errc::kRankLeft});
    case Fault::kAbort:
      return outcome.message() == "the user ends the job";
    case Fault::kStall:
      // The culprit leaves in the end. Ranks that have joined wait for it without a limit.
      if (named && outcome.code() == Errc::kRankLeft) return true;
      return outcome.code() == Errc::kTimeout && (named || others_are_missed(scenario_.program));
    case Fault::kFreeze:
      return outcome.code() == Errc::kTimeout && (named || others_are_missed(scenario_.program));
    case Fault::kDevice:
      return outcome.code() == Errc::kSystem;
  }
  return false;
}

void Oracle::ended(int rank, const Status& outcome, bool alone, TimePoint now) {
  const std::string who = "rank " + std::to_string(rank);
  if (outcome.ok()) {
    if (struck_ && !all_well_possible_ && !alone) findings_.add(who + " ends well although the job has failed");
  } else {
    if (!struck_ || !is_cause(outcome)) findings_.add(who + " ends with " + text_of(outcome));
    const Duration limit = wait_limit() + seconds(3 * static_cast<int>(scenario_.settings.stall_shutdown_time));
    if (struck_ && now - struck_at_ > limit) findings_.add(who + " hears of the failure too late");
  }
}

void Oracle::refused(int rank, const std::string& what, const Status& status) {
  if (struck_ && is_job_error(status) && is_cause(status)) return;
  findings_.add("rank " + std::to_string(rank) + ": " + what + " is refused: " + text_of(status));
}

void Oracle::waits(int rank, const std::string& what) {
  findings_.add("rank " + std::to_string(rank) + " waits forever for " + what);
}

}  // namespace distrun::sim
