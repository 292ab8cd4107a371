// What the virtual ranks' programs do: which tensors they submit how often, in which process sets, with which mistakes,
// and what must come of it. The same on all ranks; the order is each rank's own.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/engine/protocol/messages.h"
#include "test/sim/random.h"

namespace distrun::sim {

struct Slot {  // a tensor that is submitted again and again
  int unit = 0;
  engine::Submission first;  // as in round 0 on rank 0
  int changes = 0;           // every so many rounds its shape changes, or some members' rows; 0: never
  int rival = -1;            // 0, 1: only the even, or the odd, ranks submit it, and wait for the others crosswise, or
                             // until those have joined
};

struct Unit {   // slots that are submitted by one call
  int set = 0;  // of Program::sets
  std::vector<int> slots;
  int rounds = 1;  // of a rank that does not run out of data before; `after` more follow when all have joined
  int after = 0;
  bool group = false;
};

struct SetPlan {
  std::vector<int> ranks;
  int fails_on = -1;  // making its backends fails on this rank; the same for all sets of the same ranks
  bool made = true;   // whether there will be such a set
  // Its members join when they have submitted all rounds but the last `behind` ones, by member. Empty: nobody joins.
  std::vector<int> behind{};
};

struct CallPlan {
  engine::Call::Kind kind = engine::Call::Kind::kAddSet;
  int set = 0;         // of Program::sets
  int odd = -1;        // this rank makes another call instead, which is everybody's error
  bool early = false;  // remove: while tensors may be in flight
  bool members_only = false;
};

struct Deviation {
  int rank = -1;  // -1: all ranks alike
  int row = 0;    // of the table in program.cc
};

struct Program {
  std::vector<Slot> slots;
  std::vector<Unit> units;
  std::vector<SetPlan> sets;                            // 0 is the world
  std::vector<CallPlan> calls;                          // every rank makes those that it takes part in, in this order
  std::map<std::pair<int, int>, Deviation> deviations;  // by slot and round
  std::shared_ptr<std::byte[]> memory;                  // of all tensors; the same on all ranks
};

struct ProgramSize {
  int ranks = 1;
  int units = 8;
  int rounds = 4;
  int sets = 1;  // besides the world
  bool calls_go_wrong = true;
  bool rivals = false;
};
Program make_program(const ProgramSize& size, Random& random);

// What `rank` submits; the process set is set by who knows its id.
engine::Submission submission_of(const Program& program, int slot, int round, int rank);
bool submits(const Program& program, const Unit& unit, int rank);
// What the odd rank calls instead.
engine::Call odd_call(const Program& program, const CallPlan& call);
bool takes_part(const Program& program, const CallPlan& call, int rank);
bool is_grouped(const Program& program, const Unit& unit, int round, int rank);
// Rounds that the rank submits before it joins.
int rounds_of(const Program& program, const Unit& unit, int rank);
bool meets_rival(const Program& program, const Unit& unit);
// kOk; what the deviation in some tensor of the unit makes; kInvalidArgument where one cannot run because some rank has
// joined.
Errc outcome_of(const Program& program, const Unit& unit, int round);
// The one rank that deviates in some tensor of the unit; -1: none, all alike, or different ones.
int odd_rank(const Program& program, const Unit& unit, int round);
// Of each member, if the operation has rows that differ between them, and there are not too many.
std::vector<std::int64_t> received_rows(const Program& program, int slot, int round, int rank);
bool may_be_cut_off(const Program& program, const Unit& unit);  // its set is removed while tensors may be in flight
long planned_submissions(const Program& program);
std::span<const std::byte> memory_of(const Program& program);

}  // namespace distrun::sim
