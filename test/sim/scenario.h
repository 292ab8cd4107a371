// One run, made from its seed: the job, its program, its network and its fault.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/engine/engine.h"
#include "test/sim/program.h"

namespace distrun::sim {

// The fault that ends the job early.
enum class Fault {
  kNone,
  kDeath,       // a rank is killed
  kDeaths,      // several ranks are killed at about the same time
  kEarlyLeave,  // a rank shuts down without submitting the rest
  kEarlyExit,   // a rank closes its session without shutting down
  kAbort,       // a rank aborts the job
  kStall,       // a rank submits nothing more; stall_shutdown_time ends the job
  kFreeze,      // a rank stops running; stall_shutdown_time ends the job
  kDevice,      // a backend fails on one rank
};
inline constexpr int kNumFaults = 9;
std::string_view name_of(Fault fault);
std::optional<Fault> fault_of(std::string_view name);

struct Scenario {
  std::uint64_t seed = 1;
  int ranks = 1;
  engine::EngineSettings settings;
  Duration most_delay{};  // longest delay of a message
  Duration most_time{};   // longest time of an operation in its backend
  Duration most_think{};  // longest time between two actions of a rank's program
  int congestion = 0;     // per cent of sends
  bool heavy = false;     // messages that the leader cannot send at once exceed its limit for queued bytes
  bool bursts = false;    // a rank submits everything that it can at once
  bool scatter_gather = true;
  bool sees_ends = true;   // backends notice that a peer is gone
  bool launcher = true;    // the launcher tells the ranks of deaths
  bool impatient = false;  // ranks do not wait for the others in shutdown
  bool hasty = false;      // ranks shut down with operations in flight
  Fault fault = Fault::kNone;
  std::vector<int> culprits;
  int fault_at = 0;  // per cent of the planned submissions
  Program program;
};

struct Wishes {
  std::optional<int> ranks;
  std::optional<Fault> fault;
};
Scenario make_scenario(std::uint64_t seed, const Wishes& wishes);
std::string describe(const Scenario& scenario);

}  // namespace distrun::sim
