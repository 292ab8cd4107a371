// Broken networks, members and coordinators, made by changing messages on their way. The simulation must catch each
// one.
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
  kDropped,         // a message is lost, and its connection stays open
  kSaidTwice,       // a member announces a known tensor twice
  kSaidAfterEvict,  // a member announces a tensor by an id whose eviction it has read
  kAsleepMember,    // a message arrives at a member and does not wake it
  kAsleepLeader,    // a message arrives at the leader and does not wake it
  kNotAppended,     // one member does not get an operation that the leader has decided to run
  kReordered,       // one member gets two entries in reverse order
  kNotFailed,       // one member does not get the failure of a tensor
  kNotEvicted,      // one member does not get an eviction
  kOtherCause,      // one member gets another rank as the cause of the job's end
};
inline constexpr int kNumMutants = 10;
std::string_view name_of(MutantKind kind);
std::optional<MutantKind> mutant_of(std::string_view name);

// Strikes once, at a random one of the occasions in a run.
class Mutant {
 public:
  Mutant(MutantKind kind, std::uint64_t seed);
  void touch(Passing& passing, LogWitness& witness);
  [[nodiscard]] bool struck() const { return struck_; }

 private:
  [[nodiscard]] bool occasion();  // returns true when it strikes at this occasion
  bool change_member(engine::Frame& frame, int rank, LogWitness& witness);
  bool change_leader(engine::Frame& frame);

  const MutantKind kind_;
  Random random_;
  int skips_;  // occasions left to skip before it strikes
  bool struck_ = false;
};

}  // namespace distrun::sim
