#include "test/sim/simulation.h"

#include <algorithm>
#include <exception>

#include "test/sim/mutants.h"

namespace distrun::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kManyRanks = 1024;         // from this size on, members know only the name of the leader's host, to save
                                         // memory
constexpr std::size_t kHeavy = 8 << 20;  // bytes per message; few of them exceed the limit for queued bytes
constexpr Duration kSend = std::chrono::nanoseconds(500);
constexpr Duration kLast = milliseconds(50);       // until a rank whose job has ended exits
constexpr Duration kLauncher = milliseconds(200);  // until the launcher has told all ranks of a death

std::string host_of(int rank) { return "node" + std::to_string(rank / 4); }

}  // namespace

Simulation::Simulation(const Scenario& scenario, Mutant* mutant, std::function<void(const std::string&)> trace)
    : scenario_(scenario),
      mutant_(mutant),
      trace_(std::move(trace)),
      random_(scenario.seed ^ 0x5DEECE66DULL),
      network_({.size = scenario.ranks,
                .most_delay = scenario.most_delay,
                .congestion = scenario.congestion,
                .weight = scenario.heavy ? kHeavy : 1},
               scheduler_, random_.fork(), [this](int rank) { step(rank); }),
      fabric_(
          {.most_time = scenario.most_time,
           .scatter_gather = scenario.scatter_gather,
           .sees_ends = scenario.sees_ends,
           .memory = memory_of(scenario.program)},
          scheduler_, random_.fork(), [this](int rank) { step(rank); }, findings_),
      witness_(scenario.ranks, scenario.settings.cache_capacity, findings_),
      oracle_(scenario, findings_),
      ranks_(static_cast<std::size_t>(scenario.ranks)),
      strike_at_(planned_submissions(scenario.program) * scenario.fault_at / 100),
      moved_(scheduler_.now()) {
  network_.watch(&witness_);
  if (mutant_ != nullptr) network_.tamper([this](Passing& passing) { mutant_->touch(passing, witness_); });
  for (int rank = 0; rank < scenario_.ranks; ++rank) make_rank(rank);
}

engine::EngineOptions Simulation::options_of(int rank) {
  engine::EngineOptions options{.settings = scenario_.settings};
  options.world.rank = rank;
  options.world.size = scenario_.ranks;
  const int named = rank == 0 || scenario_.ranks <= kManyRanks ? scenario_.ranks : 1;
  for (int other = 0; other < named; ++other) options.hosts.push_back(host_of(other));
  options.backends = at(rank).backends.get();
  return options;
}

Result<std::vector<std::unique_ptr<backend::Backend>>> Simulation::Provider::make(int set,
                                                                                  const std::vector<int>& members) {
  const auto fails = std::ranges::any_of(
      program_.sets, [&](const auto& plan) { return set != 0 && plan.fails_on == rank_ && plan.ranks == members; });
  if (fails) return Status(Errc::kSystem, "no memory for a window");
  std::vector<std::unique_ptr<backend::Backend>> backends;
  backends.push_back(fabric_.backend(set, members, rank_));
  return backends;
}

void Simulation::make_rank(int rank) {
  Rank& self = at(rank);
  self.backends = std::make_unique<Provider>(fabric_, scenario_.program, rank);
  auto plane = scenario_.ranks > 1 ? network_.plane(rank) : nullptr;
  self.engine = std::make_unique<VirtualRank>(options_of(rank), std::move(plane));
  const Status opened = self.engine->open();
  DISTRUN_CHECK(opened.ok(), "the global set's backends are made");
  self.caller = std::make_unique<Caller>(scenario_, rank, *self.engine, oracle_, random_.fork());
  ++running_;
  plan_act(rank);
}

void Simulation::say(const std::string& what) const {
  if (!trace_) return;
  const auto at = std::chrono::duration_cast<std::chrono::microseconds>(scheduler_.now() - kStart);
  trace_(std::to_string(at.count()) + " us: " + what);
}

// --- steps of a rank ---

// Sending takes time, and more messages arrive during it. A leader of many ranks therefore answers many at once.
bool Simulation::is_busy(int rank) {
  Rank& self = at(rank);
  if (scheduler_.now() >= self.busy) return false;
  if (std::exchange(self.waits, true)) return true;
  scheduler_.at(self.busy, [this, rank] {
    at(rank).waits = false;
    step(rank);
  });
  return true;
}

void Simulation::step(int rank) {
  Rank& self = at(rank);
  if (!self.engine || self.frozen || is_busy(rank)) return;
  witness_.begin_step(rank);
  const long before = network_.sent();
  set_alarm(rank, self.engine->step());
  self.busy = scheduler_.now() + (network_.sent() - before) * kSend;
  self.caller->collect(scheduler_.now());
  if (self.engine->over()) return end(rank);
  plan_act(rank);
}

void Simulation::set_alarm(int rank, TimePoint when) {
  Rank& self = at(rank);
  if (when == self.alarm) return;
  self.alarm = when;
  if (when == TimePoint::max()) return;
  scheduler_.at(when, [this, rank, when] {
    if (at(rank).alarm != when) return;  // the alarm was set again
    at(rank).alarm = TimePoint::max();
    step(rank);
  });
}

void Simulation::plan_act(int rank) {
  if (std::exchange(at(rank).acts, true)) return;
  scheduler_.after(random_.up_to(scenario_.most_think), [this, rank] { act(rank); });
}

void Simulation::act(int rank) {
  Rank& self = at(rank);
  self.acts = false;
  if (!self.engine || self.frozen || self.over) return;
  if (self.caller->act(scheduler_.now())) {
    moved_ = scheduler_.now();
    plan_act(rank);
    step(rank);
  } else if (self.caller->done() && !self.caller->left()) {
    leave(rank);
  }
  if (!struck_ && scenario_.fault != Fault::kNone && oracle_.submissions() >= strike_at_) {
    struck_ = true;
    scheduler_.after(random_.up_to(10 * scenario_.most_delay), [this] { strike(); });
  }
}

void Simulation::leave(int rank) {
  say("rank " + std::to_string(rank) + " leaves");
  at(rank).caller->leave();
  const Duration timeout = scenario_.impatient ? milliseconds(50) : seconds(30);
  scheduler_.after(timeout, [this, rank] { give_up_waiting(rank); });
  step(rank);
}

// Does what shutdown() does when its deadline has passed.
void Simulation::give_up_waiting(int rank) {
  Rank& self = at(rank);
  if (!self.engine || self.over || self.frozen) return;
  self.gone_alone = true;
  self.going = self.engine->go();
  step(rank);
}

// The rank's part of the job is over: all its operations have completed, and it exits.
void Simulation::end(int rank) {
  Rank& self = at(rank);
  if (std::exchange(self.over, true)) return;
  const Status& outcome = self.engine->outcome();
  say("rank " + std::to_string(rank) + " ends: " + (outcome.ok() ? "well" : outcome.message()));
  moved_ = scheduler_.now();
  oracle_.ended(rank, outcome, self.gone_alone, scheduler_.now());
  if (trace_) {
    for (int other = 0; other < scenario_.ranks; ++other) {
      if (at(other).caller) say("  rank " + std::to_string(other) + " waits for " + at(other).caller->missing());
    }
  }
  if (outcome.ok() && !self.gone_alone) witness_.ended_well(rank);
  if (const std::string missing = self.caller->missing(); !missing.empty()) oracle_.waits(rank, missing);
  scheduler_.after(random_.up_to(kLast), [this, rank] { go(rank); });
}

void Simulation::go(int rank) {
  Rank& self = at(rank);
  if (!self.engine) return;
  network_.clear(rank);
  self.engine->close();
  network_.leave(rank);
  fabric_.end(rank, true);
  remove(rank);
}

void Simulation::remove(int rank) {
  at(rank).caller = nullptr;
  at(rank).engine = nullptr;
  if (!at(rank).frozen) --running_;
}

// --- faults ---

// The rank has left, so the others can continue without it.
bool Simulation::not_needed(int rank) const {
  const Rank& self = ranks_[static_cast<std::size_t>(rank)];
  return !self.engine || self.over || self.caller->left();
}

void Simulation::strike() {
  const auto& culprits = scenario_.culprits;
  const auto left = [this](int rank) { return not_needed(rank); };
  const bool well = std::all_of(culprits.begin(), culprits.end(), left);
  // With these faults the rank only omits something, and the job may not have needed it.
  const bool omits =
      scenario_.fault == Fault::kStall || scenario_.fault == Fault::kEarlyLeave || scenario_.fault == Fault::kDevice;
  oracle_.fault_struck(scheduler_.now(), well || omits, std::any_of(culprits.begin(), culprits.end(), left));
  for (const int rank : culprits) strike_one(rank);
}

void Simulation::strike_one(int rank) {
  Rank& self = at(rank);
  if (!self.engine || self.over) return;
  say("rank " + std::to_string(rank) + " is struck: " + std::string(name_of(scenario_.fault)));
  switch (scenario_.fault) {
    case Fault::kNone:
      return;
    case Fault::kDeath:
    case Fault::kDeaths:
      return kill(rank);
    case Fault::kEarlyLeave:
      if (!self.caller->left()) leave(rank);
      return;
    case Fault::kEarlyExit:
      return exit_early(rank);
    case Fault::kAbort:
      self.engine->abort(Status(ErrorInfo{.code = Errc::kAborted, .message = "the user ends the job"}));
      return step(rank);
    case Fault::kStall:
      self.caller->stop_submitting();
      // If no rank waits for it, the stall need not end the job.
      scheduler_.after(seconds(50), [this, rank] {
        if (at(rank).engine && !at(rank).over && !at(rank).caller->left()) leave(rank);
      });
      return;
    case Fault::kFreeze:
      self.frozen = true;
      --running_;
      return;
    case Fault::kDevice:
      return fabric_.fail_next(rank);
  }
}

void Simulation::kill(int rank) {
  network_.kill(rank);
  fabric_.end(rank, false);
  remove(rank);
  tell_launcher({.kind = net::JobEvent::Kind::kRankFailed,
                 .rank = rank,
                 .signal = 9,
                 .host = host_of(rank),
                 .cause = "killed by signal 9 (SIGKILL)"});
}

void Simulation::exit_early(int rank) {
  const bool left = at(rank).caller->left();
  go(rank);
  if (!left) tell_launcher({.kind = net::JobEvent::Kind::kRankLeft, .rank = rank, .host = host_of(rank)});
}

void Simulation::tell_launcher(const net::JobEvent& event) {
  if (!scenario_.launcher) return;
  for (int rank = 0; rank < scenario_.ranks; ++rank) {
    scheduler_.after(random_.up_to(kLauncher), [this, rank, event] {
      if (!at(rank).engine) return;
      at(rank).engine->hear(event);
      step(rank);
    });
  }
}

// --- the whole run ---

void Simulation::run() {
  const Duration wait_limit = oracle_.wait_limit() + seconds(200);
  try {
    while (findings_.none() && running_ > 0 && scheduler_.now() - moved_ < wait_limit && scheduler_.run_next())
      ++events_;
    if (findings_.none()) check_end();
  } catch (const std::exception& broken) {
    findings_.add(broken.what());
  }
}

void Simulation::check_end() {
  for (int rank = 0; rank < scenario_.ranks; ++rank) {
    Rank& self = at(rank);
    if (!self.engine || self.frozen) continue;
    oracle_.waits(rank, self.caller->missing().empty() ? "the end of the job" : self.caller->missing());
  }
  const bool all_well = findings_.none() && scenario_.fault == Fault::kNone && !scenario_.impatient;
  if (all_well) witness_.all_ended_well();
}

}  // namespace distrun::sim
