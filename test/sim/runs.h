// One seed from start to end, and how to run it again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "test/sim/mutants.h"
#include "test/sim/scenario.h"

namespace distrun::sim {

struct RunWishes {
  Wishes scenario;
  std::optional<MutantKind> mutant;
  std::function<void(const std::string&)> trace;
};

struct RunResult {
  std::vector<std::string> findings;
  std::string scenario;
  std::string command;  // that runs it again
  long events = 0;
  long held = 0;  // looks of the leader at more than it may have queued
  bool mutant_struck = false;
  [[nodiscard]] bool ok() const { return findings.empty(); }
  [[nodiscard]] std::string text() const;
};

RunResult run_seed(std::uint64_t seed, const RunWishes& wishes);

}  // namespace distrun::sim
