// Runs one seed from start to end, and gives the command that repeats the run.
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
  std::string command;  // repeats the run
  long events = 0;
  long held = 0;  // how often the leader found too many bytes queued
  bool mutant_struck = false;
  [[nodiscard]] bool ok() const { return findings.empty(); }
  [[nodiscard]] std::string text() const;
};

RunResult run_seed(std::uint64_t seed, const RunWishes& wishes);

}  // namespace distrun::sim
