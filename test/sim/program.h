// The program of the virtual ranks: the tensors that they submit, the process sets, the mistakes, and the expected
// outcomes. The program is the same on all ranks. Each rank submits in its own order.
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

struct Slot {  // a tensor that is submitted many times
  int unit = 0;
  engine::Submission first;  // as in round 0 on rank 0
  int changes = 0;           // after this many rounds its shape, or some members' rows, change; 0: never
  int rival = -1;            // 0 or 1: only the even (0) or odd (1) ranks submit it. The others submit its rival. Each
                             // side waits for the other until that one has joined.
};

struct Unit {   // slots that one call submits
  int set = 0;  // index in Program::sets
  std::vector<int> slots;
  int rounds = 1;  // for a rank that does not run out of data earlier; `after` more follow when all ranks have joined
  int after = 0;
  bool group = false;
};

struct SetPlan {
  std::vector<int> ranks;
  int fails_on = -1;  // on this rank its backends cannot be made; the same for all sets with the same ranks
  bool made = true;   // whether the set will exist
  // Each member joins when it has submitted all rounds except its last `behind` ones. Empty: no member joins.
  std::vector<int> behind{};
};

struct CallPlan {
  engine::Call::Kind kind = engine::Call::Kind::kAddSet;
  int set = 0;         // index in Program::sets
  int odd = -1;        // this rank makes another call instead; the call then fails on all ranks
  bool early = false;  // kRemoveSet: while tensors may be in flight
  bool members_only = false;
};

struct Deviation {
  int rank = -1;  // -1: all ranks deviate in the same way
  int row = 0;    // row of the table in program.cc
};

struct Program {
  std::vector<Slot> slots;
  std::vector<Unit> units;
  std::vector<SetPlan> sets;                            // 0 is the world
  std::vector<CallPlan> calls;                          // every rank makes, in this order, those in which it takes part
  std::map<std::pair<int, int>, Deviation> deviations;  // by slot and round
  std::shared_ptr<std::byte[]> memory;                  // memory of all tensors, shared by all ranks
};

struct ProgramSize {
  int ranks = 1;
  int units = 8;
  int rounds = 4;
  int sets = 1;  // without the world
  bool calls_go_wrong = true;
  bool rivals = false;
};
Program make_program(const ProgramSize& size, Random& random);

// The submission of `rank`. The caller sets the process set, because it knows the id.
engine::Submission submission_of(const Program& program, int slot, int round, int rank);
bool submits(const Program& program, const Unit& unit, int rank);
// The call that the odd rank makes instead.
engine::Call odd_call(const Program& program, const CallPlan& call);
bool takes_part(const Program& program, const CallPlan& call, int rank);
bool is_grouped(const Program& program, const Unit& unit, int round, int rank);
// How many rounds the rank submits before it joins.
int rounds_of(const Program& program, const Unit& unit, int rank);
bool meets_rival(const Program& program, const Unit& unit);
// The expected outcome: kOk, or the error of the deviation in a tensor of the unit. It is kInvalidArgument if a tensor
// cannot run because some rank has joined.
Errc outcome_of(const Program& program, const Unit& unit, int round);
// The one rank that deviates in some tensor of the unit. -1 if there is none, all deviate alike, or several differ.
int odd_rank(const Program& program, const Unit& unit, int round);
// The rows from each member, if the members of this operation may send different rows and the set is not too large.
std::vector<std::int64_t> received_rows(const Program& program, int slot, int round, int rank);
bool may_be_cut_off(const Program& program, const Unit& unit);  // its set is removed while tensors may be in flight
long planned_submissions(const Program& program);
std::span<const std::byte> memory_of(const Program& program);

}  // namespace distrun::sim
