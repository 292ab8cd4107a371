// The engine in the simulation: seeds that must pass, and mutants that must be caught. For a seed that fails, the test
// prints the command that repeats it with a trace.
#include <catch2/catch_test_macros.hpp>
#include <iostream>

#include "test/sim/runs.h"

namespace distrun::sim {
namespace {

// Prints each failing seed at once. It stops after the first few, which are enough.
int failures(std::uint64_t seeds, const RunWishes& wishes) {
  constexpr int kEnough = 5;
  int failed = 0;
  for (std::uint64_t seed = 1; seed <= seeds && failed < kEnough; ++seed) {
    const RunResult result = run_seed(seed, wishes);
    if (result.ok()) continue;
    ++failed;
    std::cerr << result.text();
  }
  return failed;
}

TEST_CASE("nobody waits forever, all ranks run the same, every error reaches every rank") {
  CHECK(failures(DISTRUN_SIM_SEEDS, {}) == 0);
}

TEST_CASE("each fault with 5 ranks") {
  for (int fault = 0; fault < kNumFaults; ++fault) {
    const RunWishes wishes{.scenario = {.ranks = 5, .fault = static_cast<Fault>(fault)}};
    CHECK(failures(DISTRUN_SIM_SEEDS / 20, wishes) == 0);
  }
}

// The faults that these seeds found: a rank leaves during a call, or with a call in flight. A device fails on a rank
// that has joined and leaves. A leader is silent, and one member notices it before another.
TEST_CASE("seeds that have failed before") {
  struct Found {
    std::uint64_t seed;
    int ranks;
    Fault fault;
  };
  for (const auto& [seed, ranks, fault] : std::vector<Found>{{959, 2, Fault::kEarlyLeave},
                                                             {1071, 2, Fault::kEarlyLeave},
                                                             {702, 5, Fault::kEarlyLeave},
                                                             {1679, 8, Fault::kEarlyLeave},
                                                             {289, 5, Fault::kDevice},
                                                             {2894, 5, Fault::kDevice},
                                                             {5958, 5, Fault::kDevice},
                                                             {2936, 3, Fault::kFreeze},
                                                             {2964, 5, Fault::kFreeze}}) {
    const RunResult result = run_seed(seed, {.scenario = {.ranks = ranks, .fault = fault}});
    INFO(result.text());
    CHECK(result.ok());
  }
}

TEST_CASE("a leader whose members are far behind holds back, and all runs in the end") {
  long held = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const RunResult result = run_seed(seed, {.scenario = {.ranks = 5, .fault = Fault::kNone}});
    INFO(result.text());
    CHECK(result.ok());
    held += result.held;
  }
  CHECK(held > 100);
}

TEST_CASE("the same seed gives the same run") {
  const RunWishes wishes{.scenario = {.ranks = 9}};
  std::vector<std::string> lines[2];
  for (auto& one : lines) {
    RunWishes traced = wishes;
    traced.trace = [&one](const std::string& line) { one.push_back(line); };
    CHECK(run_seed(7, traced).ok());
  }
  CHECK(lines[0] == lines[1]);
  CHECK_FALSE(lines[0].empty());
}

TEST_CASE("each mutant is caught within 500 seeds") {
  for (int mutant = 0; mutant < kNumMutants; ++mutant) {
    const auto kind = static_cast<MutantKind>(mutant);
    const Fault fault = kind == MutantKind::kOtherCause ? Fault::kDeath : Fault::kNone;
    const RunWishes wishes{.scenario = {.ranks = 4, .fault = fault}, .mutant = kind};
    int caught = 0;
    std::uint64_t seed = 1;
    for (; seed <= 500 && caught == 0; ++seed) caught += run_seed(seed, wishes).ok() ? 0 : 1;
    INFO(name_of(kind) << ", up to seed " << seed - 1);
    CHECK(caught > 0);
  }
}

}  // namespace
}  // namespace distrun::sim
