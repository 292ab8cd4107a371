#include "test/sim/scenario.h"

#include <algorithm>
#include <array>

namespace distrun::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::array<std::string_view, kNumFaults> kFaultNames = {
    "none", "death", "deaths", "early-leave", "early-exit", "abort", "stall", "freeze", "device"};

int random_ranks(std::uint64_t seed, Random& random) {
  if (seed % 50 == 0) return 512;
  if (seed % 25 == 0) return random.between(64, 256);
  if (seed % 5 == 0) return random.between(9, 40);
  return random.between(1, 8);
}

void choose_fault(Scenario& s, Random& random) {
  if (s.ranks == 1) s.fault = Fault::kNone;
  if (s.fault == Fault::kNone) return;
  const int culprits = s.fault == Fault::kDeaths ? random.between(2, std::min(s.ranks, 4)) : 1;
  while (static_cast<int>(s.culprits.size()) < culprits) {
    const int rank = random.chance(20) ? 0 : random.between(0, s.ranks - 1);
    if (std::find(s.culprits.begin(), s.culprits.end(), rank) == s.culprits.end()) s.culprits.push_back(rank);
  }
  s.fault_at = random.between(0, 100);
  if (s.fault == Fault::kStall || s.fault == Fault::kFreeze) s.settings.stall_shutdown_time = 20;
}

ProgramSize size_of_program(const Scenario& s, bool many, Random& random) {
  ProgramSize size{.ranks = s.ranks};
  const bool large = s.ranks > 40;
  size.units = many ? random.between(280, 400) : random.between(1, large ? 6 : 16);
  size.rounds = many || large ? 3 : random.between(1, 8);
  size.sets = many ? 1 : random.between(0, large ? 2 : 4);
  size.rivals = s.fault == Fault::kNone && s.ranks > 1 && random.chance(10);
  return size;
}

}  // namespace

std::string_view name_of(Fault fault) { return kFaultNames[static_cast<std::size_t>(fault)]; }

std::optional<Fault> fault_of(std::string_view name) {
  const auto found = std::find(kFaultNames.begin(), kFaultNames.end(), name);
  if (found == kFaultNames.end()) return std::nullopt;
  return static_cast<Fault>(found - kFaultNames.begin());
}

Scenario make_scenario(std::uint64_t seed, const Wishes& wishes) {
  Random random(seed);
  Scenario s{.seed = seed};
  s.ranks = wishes.ranks.value_or(random_ranks(seed, random));
  const bool faulty = random.chance(50);
  s.fault = wishes.fault.value_or(faulty ? static_cast<Fault>(random.between(1, kNumFaults - 1)) : Fault::kNone);
  s.settings.deadlock_time = 0;  // simulated programs have no threads that could be asked
  s.settings.cache_capacity = random.pick(std::vector<std::uint64_t>{0, 1, 3, 8, 1024});
  s.settings.fusion_threshold = random.pick(std::vector<std::uint64_t>{0, 64, 1 << 20});
  s.settings.stall_warning_time = random.chance(50) ? 10 : 0;
  s.impatient = random.chance(20);
  s.most_delay = random.pick(std::vector<Duration>{microseconds(1), milliseconds(1), milliseconds(20)});
  s.most_time = random.pick(std::vector<Duration>{Duration(0), microseconds(100), milliseconds(5)});
  s.most_think = random.pick(std::vector<Duration>{Duration(0), microseconds(100), milliseconds(10)});
  s.congestion = random.chance(30) ? random.between(1, 40) : 0;
  s.heavy = Random(~seed).chance(50);  // has its own stream, so that older failing seeds stay the same
  s.bursts = random.chance(40);
  s.scatter_gather = random.chance(85);
  s.sees_ends = random.chance(70);
  s.launcher = random.chance(60);
  choose_fault(s, random);
  const bool many = s.ranks <= 5 && random.chance(4);
  if (many) s.settings.cache_capacity = static_cast<std::uint64_t>(random.between(50, 300));
  const ProgramSize size = size_of_program(s, many, random);
  s.program = make_program(size, random);
  s.hasty = !size.rivals && random.chance(25);
  return s;
}

std::string describe(const Scenario& s) {
  std::string text = "seed " + std::to_string(s.seed) + ": " + std::to_string(s.ranks) + " ranks, " +
                     std::to_string(s.program.slots.size()) + " tensors, " + std::to_string(s.program.sets.size() - 1) +
                     " sets, cache " + std::to_string(s.settings.cache_capacity) + ", fault " +
                     std::string(name_of(s.fault));
  for (const int rank : s.culprits) text += " " + std::to_string(rank);
  return text;
}

}  // namespace distrun::sim
