#include "test/sim/program.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace distrun::sim {
namespace {

using engine::Submission;

constexpr std::size_t kMemory = 8192;  // bytes for one tensor: input and output
constexpr int kFirstDims = 5;          // an allgather's first dimension is smaller than this
constexpr std::size_t kMostAlltoall = 64;

// --- one row per operation: how to make a random one, and how it may differ between members ---

struct Place {  // the submitter's place in the set
  int member = 0;
  int members = 1;
  int turn = 0;  // how often this member's rows have changed
};

void fill_reduction(Submission& one, const std::vector<int>&, Random& random) {
  one.reduce = static_cast<ReduceOp>(random.below(kNumReduceOps));
  one.prescale = random.chance(80) ? 1.0 : 0.5;
  one.postscale = random.chance(80) ? 1.0 : 2.0;
}

void fill_allgather(Submission& one, const std::vector<int>&, Random& random) {
  one.shape = {random.between(0, kFirstDims - 1), random.between(0, 3)};
}

void vary_allgather(Submission& one, Place place) {
  one.shape[0] = (one.shape[0] + place.member + place.turn) % kFirstDims;
}

void fill_broadcast(Submission& one, const std::vector<int>& ranks, Random& random) { one.root = random.pick(ranks); }

// The number of rows for each member. If the first dimension is even, all shares are equal.
void fill_alltoall(Submission& one, const std::vector<int>&, Random& random) {
  one.shape = {random.between(0, kFirstDims - 1), random.between(0, 3)};
}

void vary_alltoall(Submission& one, Place place) {
  const std::int64_t base = one.shape[0];
  one.shape[0] = base * place.members;
  if (base % 2 == 0) return;
  one.shape[0] = 0;
  for (int to = 0; to < place.members; ++to) {
    one.splits.push_back((base + place.member + place.turn + to) % 3);
    one.shape[0] += one.splits.back();
  }
}

void fill_reducescatter(Submission& one, const std::vector<int>& ranks, Random& random) {
  fill_reduction(one, ranks, random);
  one.shape = {random.between(0, 8), random.between(0, 3)};
}

struct KindRow {
  OpKind kind;
  void (*fill)(Submission&, const std::vector<int>& ranks, Random&);
  void (*vary)(Submission&, Place);
};
const std::array kKinds = {
    KindRow{OpKind::kAllreduce, fill_reduction, nullptr},
    KindRow{OpKind::kAllgather, fill_allgather, vary_allgather},
    KindRow{OpKind::kBroadcast, fill_broadcast, nullptr},
    KindRow{OpKind::kBarrier, nullptr, nullptr},
    KindRow{OpKind::kAlltoall, fill_alltoall, vary_alltoall},
    KindRow{OpKind::kReducescatter, fill_reducescatter, nullptr},
};

const KindRow& row_of(OpKind kind) {
  return *std::find_if(kKinds.begin(), kKinds.end(), [kind](const KindRow& row) { return row.kind == kind; });
}

// --- one row per mistake ---

bool is_data(const Submission& one) { return one.kind != OpKind::kBarrier; }
bool is_allreduce(const Submission& one) { return one.kind == OpKind::kAllreduce; }
bool is_alltoall(const Submission& one) { return one.kind == OpKind::kAlltoall; }
bool is_by_rows(const Submission& one) {
  return one.kind == OpKind::kAllgather || one.kind == OpKind::kAlltoall || one.kind == OpKind::kReducescatter;
}
bool is_broadcast(const Submission& one) { return one.kind == OpKind::kBroadcast; }
bool is_any(const Submission&) { return true; }

struct DeviationRow {
  bool on_all;  // all ranks agree, and what they agree on is wrong
  Errc outcome;
  bool (*applies)(const Submission&);
  void (*apply)(Submission&);
};
const std::array kDeviations = {
    DeviationRow{false, Errc::kMismatch, is_any,
                 [](Submission& s) { s.kind = s.kind == OpKind::kBarrier ? OpKind::kAllreduce : OpKind::kBarrier; }},
    DeviationRow{false, Errc::kMismatch, is_data,
                 [](Submission& s) { s.dtype = s.dtype == DType::kF32 ? DType::kI64 : DType::kF32; }},
    DeviationRow{false, Errc::kMismatch, is_data, [](Submission& s) { s.shape.push_back(2); }},
    DeviationRow{false, Errc::kMismatch, is_allreduce,
                 [](Submission& s) { s.reduce = s.reduce == ReduceOp::kSum ? ReduceOp::kMax : ReduceOp::kSum; }},
    DeviationRow{false, Errc::kMismatch, is_allreduce, [](Submission& s) { s.prescale = 0.25; }},
    DeviationRow{false, Errc::kMismatch, is_allreduce, [](Submission& s) { s.postscale = 0.25; }},
    DeviationRow{false, Errc::kMismatch, is_broadcast, [](Submission& s) { s.root += 1; }},
    DeviationRow{true, Errc::kInvalidArgument, is_broadcast, [](Submission& s) { s.root = -1; }},
    DeviationRow{true, Errc::kInvalidArgument, is_by_rows, [](Submission& s) { s.shape.clear(); }},
    DeviationRow{false, Errc::kInvalidArgument, is_alltoall, [](Submission& s) { s.splits.assign(1, -1); }},
};
constexpr int kUngrouped = static_cast<int>(kDeviations.size());  // one rank submits the tensors of a group one by one

// --- making a program ---

// Whether the operation can run after some members have joined.
bool goes_without(const Submission& one, bool root_has_joined) {
  if (one.kind == OpKind::kAlltoall || one.kind == OpKind::kReducescatter) return false;
  if (one.kind == OpKind::kBroadcast) return !root_has_joined;
  const bool sums = one.reduce == ReduceOp::kSum || one.reduce == ReduceOp::kAverage;
  return one.kind != OpKind::kAllreduce || sums || one.prescale == 1.0;
}

Shape random_shape(Random& random) {
  Shape shape;
  for (int dimensions = random.between(0, 2); dimensions > 0; --dimensions) shape.push_back(random.between(0, 8));
  return shape;
}

int add_slot(Program& program, const KindRow& row, std::string name, Random& random) {
  static constexpr std::array kTypes = {DType::kF32, DType::kF32, DType::kI32, DType::kF16, DType::kBool};
  Unit& unit = program.units.back();
  Slot slot{.unit = static_cast<int>(program.units.size()) - 1};
  slot.first.kind = row.kind;
  slot.first.name = std::move(name);
  slot.first.dtype = kTypes[random.below(kTypes.size())];
  slot.first.shape = random_shape(random);
  if (row.fill != nullptr) row.fill(slot.first, program.sets[static_cast<std::size_t>(unit.set)].ranks, random);
  slot.changes = random.chance(25) ? random.between(1, 3) : 0;
  unit.slots.push_back(static_cast<int>(program.slots.size()));
  program.slots.push_back(std::move(slot));
  return unit.slots.back();
}

// The members that submit the round. Only these can make a mistake in it.
std::vector<int> submitters_of(const Program& program, const Unit& unit, int round) {
  std::vector<int> ranks = program.sets[static_cast<std::size_t>(unit.set)].ranks;
  std::erase_if(ranks, [&](int rank) { return rounds_of(program, unit, rank) <= round; });
  return ranks;
}

void deviate(Program& program, const Unit& unit, Random& random) {
  const int slot = random.pick(unit.slots);
  const int round = random.between(0, unit.rounds - 1);
  const std::vector<int> ranks = submitters_of(program, unit, round);
  // Only one error in a round.
  if (ranks.empty() || outcome_of(program, unit, round) != Errc::kOk) return;
  if (unit.group && ranks.size() > 1 && random.chance(30)) {
    program.deviations[{slot, round}] = {.rank = random.pick(ranks), .row = kUngrouped};
    return;
  }
  const int row = random.between(0, static_cast<int>(kDeviations.size()) - 1);
  const DeviationRow& deviation = kDeviations[static_cast<std::size_t>(row)];
  if (!deviation.applies(program.slots[static_cast<std::size_t>(slot)].first)) return;
  if (!deviation.on_all && ranks.size() < 2) return;
  program.deviations[{slot, round}] = {.rank = deviation.on_all ? -1 : random.pick(ranks), .row = row};
}

const KindRow& random_kind(const std::vector<int>& ranks, Random& random) {
  for (;;) {
    const KindRow& row = kKinds[random.below(kKinds.size())];
    // For an alltoall, every member knows the rows of all pairs of members. Large sets would need too much memory.
    if (row.kind != OpKind::kAlltoall || ranks.size() <= kMostAlltoall) return row;
  }
}

void add_unit(Program& program, const ProgramSize& size, Random& random) {
  const int number = static_cast<int>(program.units.size());
  std::vector<int> sets;
  for (int set = 0; set < static_cast<int>(program.sets.size()); ++set) {
    if (program.sets[static_cast<std::size_t>(set)].made) sets.push_back(set);
  }
  program.units.push_back({.set = random.chance(50) ? 0 : random.pick(sets), .rounds = random.between(1, size.rounds)});
  Unit& unit = program.units.back();
  const std::vector<int> ranks = program.sets[static_cast<std::size_t>(unit.set)].ranks;
  if (!program.sets[static_cast<std::size_t>(unit.set)].behind.empty()) unit.after = random.between(0, 1);
  unit.group = random.chance(20);
  const int slots = unit.group ? random.between(2, 4) : 1;
  for (int i = 0; i < slots; ++i) {
    add_slot(program, random_kind(ranks, random), std::to_string(number) + "/" + std::to_string(i), random);
  }
  if (random.chance(20)) deviate(program, unit, random);
}

void add_rivals(Program& program, Random& random) {
  static constexpr std::array kRivals = {OpKind::kAllreduce, OpKind::kAllgather};
  for (int party = 0; party < 2; ++party) {
    program.units.push_back({});
    const OpKind kind = kRivals[static_cast<std::size_t>(party)];
    const int slot = add_slot(program, row_of(kind), std::string(name_of(kind)) + ".rival", random);
    program.slots[static_cast<std::size_t>(slot)].rival = party;
  }
}

std::vector<int> some_ranks(int size, Random& random) {
  std::vector<int> ranks;
  const int most = random.between(1, size);
  for (int rank = 0; rank < size; ++rank) {
    if (static_cast<int>(random.below(static_cast<std::uint64_t>(size))) < most) ranks.push_back(rank);
  }
  if (ranks.empty()) ranks.push_back(random.between(0, size - 1));
  return ranks;
}

void add_joins(SetPlan& plan, Random& random) {
  for (std::size_t i = 0; i < plan.ranks.size(); ++i) plan.behind.push_back(random.between(0, 3));
}

void add_sets(Program& program, const ProgramSize& size, Random& random) {
  const auto odd = [&](const std::vector<int>& takers) {
    return size.calls_go_wrong && !takers.empty() && random.chance(10) ? random.pick(takers) : -1;
  };
  // If only the two members of a set take part, neither can make a smaller call by mistake.
  const auto takers = [&](const SetPlan& plan, bool alone) {
    const std::vector<int>& ranks = alone ? plan.ranks : program.sets.front().ranks;
    return ranks.size() > (alone ? 2U : 1U) ? ranks : std::vector<int>();
  };
  std::vector<bool> members_only(static_cast<std::size_t>(size.sets) + 1);
  for (int set = 1; set <= size.sets; ++set) {
    SetPlan plan{.ranks = some_ranks(size.ranks, random)};
    const bool alone = members_only[static_cast<std::size_t>(set)] = random.chance(50);
    if (size.calls_go_wrong && random.chance(10)) plan.fails_on = random.pick(plan.ranks);
    for (const SetPlan& other : program.sets) {
      if (&other != &program.sets.front() && other.ranks == plan.ranks) plan.fails_on = other.fails_on;
    }
    const CallPlan call{
        .kind = engine::Call::Kind::kAddSet, .set = set, .odd = odd(takers(plan, alone)), .members_only = alone};
    plan.made = call.odd < 0 && plan.fails_on < 0;
    if (random.chance(20)) add_joins(plan, random);
    program.calls.push_back(call);
    program.sets.push_back(std::move(plan));
    if (random.chance(20)) program.calls.push_back({.kind = engine::Call::Kind::kStopTimeline, .odd = -1});
  }
  for (int set = 1; set <= size.sets; ++set) {
    const SetPlan& plan = program.sets[static_cast<std::size_t>(set)];
    if (!plan.made || random.chance(40)) continue;
    const bool alone = members_only[static_cast<std::size_t>(set)];
    program.calls.push_back({.kind = engine::Call::Kind::kRemoveSet,
                             .set = set,
                             .odd = odd(takers(plan, alone)),
                             .early = random.chance(40),
                             .members_only = alone});
  }
}

}  // namespace

Program make_program(const ProgramSize& size, Random& random) {
  Program program;
  SetPlan world;
  world.ranks.resize(static_cast<std::size_t>(size.ranks));
  std::iota(world.ranks.begin(), world.ranks.end(), 0);
  if (random.chance(size.rivals ? 50 : 20)) add_joins(world, random);
  program.sets.push_back(std::move(world));
  add_sets(program, size, random);
  for (int unit = 0; unit < size.units; ++unit) add_unit(program, size, random);
  if (size.rivals) add_rivals(program, random);
  program.memory = std::make_shared<std::byte[]>(program.slots.size() * kMemory);
  for (std::size_t i = 0; i < program.slots.size(); ++i) {
    program.slots[i].first.input = program.memory.get() + i * kMemory;
    const bool in_place = program.slots[i].first.kind != OpKind::kReducescatter && random.chance(50);
    program.slots[i].first.output = program.memory.get() + i * kMemory + (in_place ? 0 : kMemory / 2);
  }
  return program;
}

Submission submission_of(const Program& program, int slot, int round, int rank) {
  const Slot& plan = program.slots[static_cast<std::size_t>(slot)];
  const Unit& unit = program.units[static_cast<std::size_t>(plan.unit)];
  const std::vector<int>& ranks = program.sets[static_cast<std::size_t>(unit.set)].ranks;
  Submission one = plan.first;
  if (const auto vary = row_of(one.kind).vary) {
    const auto member = static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
    // At each change, half of the members change their rows.
    const int turn = plan.changes > 0 ? (round / plan.changes + member) / 2 : 0;
    vary(one, {.member = member, .members = static_cast<int>(ranks.size()), .turn = turn});
  } else if (plan.changes > 0 && !one.shape.empty()) {
    one.shape.back() += round / plan.changes;
  }
  const auto found = program.deviations.find({slot, round});
  if (found == program.deviations.end() || found->second.row == kUngrouped) return one;
  const Deviation& deviation = found->second;
  if (deviation.rank < 0 || deviation.rank == rank) kDeviations[static_cast<std::size_t>(deviation.row)].apply(one);
  return one;
}

bool submits(const Program& program, const Unit& unit, int rank) {
  const std::vector<int>& ranks = program.sets[static_cast<std::size_t>(unit.set)].ranks;
  const int rival = program.slots[static_cast<std::size_t>(unit.slots.front())].rival;
  return std::binary_search(ranks.begin(), ranks.end(), rank) && (rival < 0 || rank % 2 == rival);
}

engine::Call odd_call(const Program& program, const CallPlan& call) {
  if (!call.members_only) return {.kind = engine::Call::Kind::kStopTimeline};
  // The odd call needs one other member, which waits in the right call. No other rank is held up.
  const std::vector<int>& ranks = program.sets[static_cast<std::size_t>(call.set)].ranks;
  const int other = ranks.front() == call.odd ? ranks.back() : ranks.front();
  return {.kind = engine::Call::Kind::kAddSet,
          .ranks = {std::min(call.odd, other), std::max(call.odd, other)},
          .members_only = true};
}

bool takes_part(const Program& program, const CallPlan& call, int rank) {
  const std::vector<int>& ranks = program.sets[static_cast<std::size_t>(call.set)].ranks;
  return !call.members_only || std::binary_search(ranks.begin(), ranks.end(), rank);
}

bool is_grouped(const Program& program, const Unit& unit, int round, int rank) {
  return unit.group && std::none_of(unit.slots.begin(), unit.slots.end(), [&](int slot) {
           const auto found = program.deviations.find({slot, round});
           return found != program.deviations.end() && found->second.row == kUngrouped && found->second.rank == rank;
         });
}

int rounds_of(const Program& program, const Unit& unit, int rank) {
  const SetPlan& set = program.sets[static_cast<std::size_t>(unit.set)];
  if (set.behind.empty()) return unit.rounds;
  const auto member = std::lower_bound(set.ranks.begin(), set.ranks.end(), rank) - set.ranks.begin();
  return std::max(0, unit.rounds - set.behind[static_cast<std::size_t>(member)]);
}

// True if some rank waits for the tensor, and another rank for its rival.
bool meets_rival(const Program& program, const Unit& unit) {
  if (program.slots[static_cast<std::size_t>(unit.slots.front())].rival < 0) return false;
  bool waits[2] = {false, false};
  for (const int rank : program.sets[static_cast<std::size_t>(unit.set)].ranks) {
    if (rounds_of(program, unit, rank) > 0) waits[rank % 2] = true;
  }
  return waits[0] && waits[1];
}

Errc outcome_of(const Program& program, const Unit& unit, int round) {
  const std::vector<int>& ranks = program.sets[static_cast<std::size_t>(unit.set)].ranks;
  const auto has_joined = [&](int rank) { return round < unit.rounds && round >= rounds_of(program, unit, rank); };
  const bool joined = std::any_of(ranks.begin(), ranks.end(), has_joined);
  Errc outcome = Errc::kOk;
  for (const int slot : unit.slots) {
    const Slot& plan = program.slots[static_cast<std::size_t>(slot)];
    if (meets_rival(program, unit)) return Errc::kMismatch;
    const auto found = program.deviations.find({slot, round});
    if (found != program.deviations.end()) {
      const int row = found->second.row;
      return row == kUngrouped ? Errc::kMismatch : kDeviations[static_cast<std::size_t>(row)].outcome;
    }
    if (joined && !goes_without(plan.first, has_joined(plan.first.root))) outcome = Errc::kInvalidArgument;
  }
  return outcome;
}

int odd_rank(const Program& program, const Unit& unit, int round) {
  int odd = -1;
  for (const int slot : unit.slots) {
    const auto found = program.deviations.find({slot, round});
    if (found == program.deviations.end()) continue;
    if (found->second.rank < 0 || (odd >= 0 && odd != found->second.rank)) return -1;
    odd = found->second.rank;
  }
  return odd;
}

std::vector<std::int64_t> received_rows(const Program& program, int slot, int round, int rank) {
  const Slot& plan = program.slots[static_cast<std::size_t>(slot)];
  const Unit& unit = program.units[static_cast<std::size_t>(plan.unit)];
  const std::vector<int>& ranks = program.sets[static_cast<std::size_t>(unit.set)].ranks;
  std::vector<std::int64_t> rows;
  if (row_of(plan.first.kind).vary == nullptr || ranks.size() > kMostAlltoall) return rows;
  const auto own = std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
  for (const int from : ranks) {
    const Submission one = submission_of(program, slot, round, from);
    const bool joined = round < unit.rounds && round >= rounds_of(program, unit, from);
    if (one.kind == OpKind::kAllgather) {
      rows.push_back(joined ? 0 : one.shape.front());
    } else {
      const auto members = static_cast<std::int64_t>(ranks.size());
      rows.push_back(one.splits.empty() ? one.shape.front() / members : one.splits[static_cast<std::size_t>(own)]);
    }
  }
  return rows;
}

bool may_be_cut_off(const Program& program, const Unit& unit) {
  return std::any_of(program.calls.begin(), program.calls.end(), [&](const CallPlan& call) {
    return call.kind == engine::Call::Kind::kRemoveSet && call.set == unit.set && call.early;
  });
}

long planned_submissions(const Program& program) {
  long planned = 0;
  for (const Unit& unit : program.units) {
    const auto members = static_cast<long>(program.sets[static_cast<std::size_t>(unit.set)].ranks.size());
    planned += members * (unit.rounds + unit.after) * static_cast<long>(unit.slots.size());
  }
  return planned;
}

std::span<const std::byte> memory_of(const Program& program) {
  return {program.memory.get(), program.slots.size() * kMemory};
}

}  // namespace distrun::sim
