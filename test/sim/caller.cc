#include "test/sim/caller.h"

#include <algorithm>

#include "runtime/engine/protocol/tensor_key.h"

namespace distrun::sim {

using engine::Call;

Caller::Caller(const Scenario& scenario, int rank, VirtualRank& engine, Oracle& oracle, Random random)
    : scenario_(scenario),
      rank_(rank),
      engine_(engine),
      oracle_(oracle),
      random_(random),
      units_(scenario.program.units.size()),
      sets_(scenario.program.sets.size()),
      ids_{{0, 0}} {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    units_[unit].dropped = !submits(program(), program().units[unit], rank_);
  }
  for (std::size_t set = 0; set < sets_.size(); ++set) {
    const SetPlan& plan = program().sets[set];
    const bool ours = std::binary_search(plan.ranks.begin(), plan.ranks.end(), rank_);
    sets_[set].joined = plan.behind.empty() || !ours;
  }
  skip_calls();
}

// Skips the calls in which this rank does not take part.
void Caller::skip_calls() {
  const auto& calls = program().calls;
  while (next_call_ < calls.size() && !takes_part(program(), calls[next_call_], rank_)) ++next_call_;
}

// --- which actions are possible ---

bool Caller::submitted_all(std::size_t unit) const {
  const UnitState& state = units_[unit];
  const Unit& plan = program().units[unit];
  return state.dropped || state.round >= plan.rounds + plan.after;
}

bool Caller::finished(std::size_t unit) const { return units_[unit].handles.empty() && submitted_all(unit); }

bool Caller::can_submit(std::size_t unit) const {
  const UnitState& state = units_[unit];
  const Unit& plan = program().units[unit];
  if (!state.handles.empty() || finished(unit) || !ids_.contains(plan.set)) return false;
  const SetState& set = sets_[static_cast<std::size_t>(plan.set)];
  return !set.join && (set.joined || state.round < rounds_of(program(), plan, rank_));
}

// A rank can join when it has submitted everything that it has data for. Operations may be in flight, but none with a
// rival: once the rank has joined, the rival no longer waits for it.
bool Caller::can_join(std::size_t set) const {
  if (sets_[set].joined || sets_[set].join || !ids_.contains(static_cast<int>(set))) return false;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const UnitState& state = units_[unit];
    const Unit& plan = program().units[unit];
    if (static_cast<std::size_t>(plan.set) != set || state.dropped) continue;
    if (state.round < rounds_of(program(), plan, rank_)) return false;
    const bool rival = program().slots[static_cast<std::size_t>(plan.slots.front())].rival >= 0;
    if (rival && !state.handles.empty()) return false;
  }
  return true;
}

bool Caller::can_call() const {
  if (ticket_ || next_call_ >= program().calls.size()) return false;
  const CallPlan& plan = program().calls[next_call_];
  if (plan.kind != Call::Kind::kRemoveSet || plan.early) return true;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (program().units[unit].set == plan.set && !finished(unit)) return false;
  }
  return sets_[static_cast<std::size_t>(plan.set)].joined;
}

bool Caller::done() const {
  if (ticket_ || next_call_ < program().calls.size()) return false;
  if (!std::all_of(sets_.begin(), sets_.end(), [](const SetState& set) { return set.joined; })) return false;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (!finished(unit) && !(scenario_.hasty && submitted_all(unit))) return false;
  }
  return true;
}

std::string Caller::missing() const {
  std::string text;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (units_[unit].handles.empty()) continue;
    const Unit& plan = program().units[unit];
    text += "'" + program().slots[static_cast<std::size_t>(plan.slots.front())].first.name + "' of set " +
            std::to_string(plan.set) + ", round " + std::to_string(units_[unit].moving) + "; ";
  }
  for (std::size_t set = 0; set < sets_.size(); ++set) {
    if (sets_[set].join) text += "the join of set " + std::to_string(set) + "; ";
  }
  if (ticket_) text += "call " + std::to_string(next_call_) + "; ";
  return text;
}

// --- actions ---

bool Caller::act(TimePoint now) {
  if (stopped_ || left_) return false;
  std::vector<std::size_t> possible;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (can_submit(unit)) possible.push_back(unit);
  }
  for (std::size_t set = 0; set < sets_.size(); ++set) {
    if (!can_join(set)) continue;
    join(set, now);
    return true;
  }
  const bool calls = can_call();
  if (calls && (possible.empty() || random_.chance(20))) {
    call(now);
    return true;
  }
  if (possible.empty()) return false;
  if (!scenario_.bursts) {
    submit(random_.pick(possible), now);
    return true;
  }
  while (!possible.empty()) {
    const auto next = possible.begin() + static_cast<std::ptrdiff_t>(random_.below(possible.size()));
    submit(*next, now);
    possible.erase(next);
  }
  return true;
}

void Caller::submit(std::size_t unit, TimePoint now) {
  const Unit& plan = program().units[unit];
  UnitState& state = units_[unit];
  const bool grouped = is_grouped(program(), plan, state.round, rank_);
  std::vector<engine::Submission> submissions;
  for (const int slot : plan.slots) {
    submissions.push_back(submission_of(program(), slot, state.round, rank_));
    submissions.back().process_set = ids_.at(plan.set);
    submissions.back().group = grouped ? 0 : -1;
  }
  auto handles = engine_.submit(submissions);
  if (!handles.ok()) {
    state.dropped = true;  // the job has ended, or the oracle reports a finding
    return oracle_.refused(rank_, "tensor '" + submissions.front().name + "'", handles.status());
  }
  state.handles = *std::move(handles);
  state.moving = state.round++;
  for (const int slot : plan.slots) oracle_.submitted(slot, state.moving, now);
  if (random_.chance(2)) submit_twice(unit);
}

// A duplicate name is refused at once, and no other rank learns of it.
void Caller::submit_twice(std::size_t unit) {
  const Unit& plan = program().units[unit];
  engine::Submission again = submission_of(program(), plan.slots.front(), units_[unit].moving, rank_);
  again.process_set = ids_.at(plan.set);
  const auto handles = engine_.submit(std::span(&again, 1));
  if (handles.ok()) return oracle_.refused(rank_, "nothing", Status(Errc::kInternal, "a duplicate name was taken"));
  if (handles.status().code() != Errc::kDuplicateName) oracle_.refused(rank_, "a duplicate name", handles.status());
}

void Caller::join(std::size_t set, TimePoint now) {
  const engine::Submission one{
      .kind = OpKind::kJoin, .name = std::string(engine::kJoinName), .process_set = ids_.at(static_cast<int>(set))};
  const auto handles = engine_.submit(std::span(&one, 1));
  oracle_.joined(static_cast<int>(set), now);
  if (handles.ok()) {
    sets_[set].join = handles->front();
  } else {
    sets_[set].joined = true;
    oracle_.refused(rank_, "the join of set " + std::to_string(set), handles.status());
  }
}

void Caller::call(TimePoint now) {
  const CallPlan& plan = program().calls[next_call_];
  Call call{.kind = plan.kind, .members_only = plan.members_only && plan.kind == Call::Kind::kAddSet};
  if (call.kind == Call::Kind::kAddSet) call.ranks = program().sets[static_cast<std::size_t>(plan.set)].ranks;
  if (plan.odd == rank_) call = odd_call(program(), plan);
  if (call.kind == Call::Kind::kRemoveSet) {
    call.set = removing_ = ids_.at(plan.set);
    ids_.erase(plan.set);
  }
  oracle_.called(static_cast<int>(next_call_), now);
  ticket_ = engine_.call(std::move(call));
}

// --- results ---

void Caller::collect(TimePoint now) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    UnitState& state = units_[unit];
    const auto done = [](const engine::HandlePtr& handle) { return handle->done(); };
    if (state.handles.empty() || !std::all_of(state.handles.begin(), state.handles.end(), done)) continue;
    const Unit& plan = program().units[unit];
    for (std::size_t i = 0; i < plan.slots.size(); ++i) {
      oracle_.completed(rank_, plan.slots[i], state.moving, *state.handles[i], now);
    }
    state.handles.clear();
  }
  for (std::size_t set = 0; set < sets_.size(); ++set) {
    if (sets_[set].join && sets_[set].join->done()) collect_join(set, now);
  }
  if (ticket_ && ticket_->done()) collect_call(now);
}

void Caller::collect_join(std::size_t set, TimePoint now) {
  SetState& state = sets_[set];
  const auto& dims = state.join->output().first_dims;
  const int last = dims.empty() ? -1 : static_cast<int>(dims.front());
  oracle_.join_ended(rank_, static_cast<int>(set), state.join->status(), last, now);
  state.join = nullptr;
  state.joined = true;
  // All ranks are now past the rounds for which only other ranks had data.
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const Unit& plan = program().units[unit];
    if (static_cast<std::size_t>(plan.set) == set) units_[unit].round = std::max(units_[unit].round, plan.rounds);
  }
}

void Caller::collect_call(TimePoint now) {
  const CallPlan& plan = program().calls[next_call_];
  const Status status = ticket_->status();
  oracle_.call_ended(rank_, static_cast<int>(next_call_), status, ticket_->set(), now);
  if (plan.kind == Call::Kind::kAddSet) {
    if (status.ok()) ids_[plan.set] = ticket_->set();
    if (!status.ok()) drop(plan.set);
  }
  // If the removal is refused, the set stays. The rank that made another call has also kept its set.
  if (plan.kind == Call::Kind::kRemoveSet) {
    if (status.ok()) drop(plan.set);
    if (!status.ok() && !ids_.contains(plan.set)) ids_[plan.set] = removing_;
  }
  ticket_ = nullptr;
  ++next_call_;
  skip_calls();
}

void Caller::drop(int set) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (program().units[unit].set == set) units_[unit].dropped = true;
  }
  if (!sets_[static_cast<std::size_t>(set)].join) sets_[static_cast<std::size_t>(set)].joined = true;
}

void Caller::leave() {
  left_ = true;
  engine_.leave();
}

}  // namespace distrun::sim
