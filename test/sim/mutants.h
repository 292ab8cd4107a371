// Broken networks, broken members and broken coordinators, made by changing what passes: the simulation must catch
// each.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/protocol/messages.h"
#include "test/sim/log_witness.h"
#include "test/sim/network.h"
#include "test/sim/random.h"

namespace distrun::sim {

enum class MutantKind {
  kDropped,         // a message is lost, its connection lives on
  kSaidTwice,       // a member announces a known tensor twice
  kSaidAfterEvict,  // a member announces a tensor by an id that it has read the eviction of
  kAsleepMember,    // a message arrives at a member, which sleeps on
  kAsleepLeader,    // a message arrives at the leader, which sleeps on
  kNotAppended,     // what the leader has decided to run is not told to one member
  kReordered,       // one member gets two entries in the other order
  kNotFailed,       // one member is not told that a tensor fails
  kNotEvicted,      // one member is not told of an eviction
  kOtherCause,      // one member is told that the job ends for another rank
};
inline constexpr int kNumMutants = 10;
std::string_view name_of(MutantKind kind);
std::optional<MutantKind> mutant_of(std::string_view name);

// Strikes once, at a random one of the occasions that a run offers.
class Mutant {
 public:
  Mutant(MutantKind kind, std::uint64_t seed);
  void touch(Passing& passing, LogWitness& witness);
  [[nodiscard]] bool struck() const { return struck_; }

 private:
  [[nodiscard]] bool occasion();  // true: this one
  bool change_member(engine::Frame& frame, int rank, LogWitness& witness);
  bool change_leader(engine::Frame& frame);

  const MutantKind kind_;
  Random random_;
  int skips_;  // occasions that pass
  bool struck_ = false;
};

}  // namespace distrun::sim
