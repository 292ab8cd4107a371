// What one member sends and receives for one operation on the ring (all but alltoall), as numbers only: pure, so that a
// whole ring can be checked in a unit test. Message i that a member sends to its right neighbour is message i that the
// neighbour receives from its left. Messages go out in order; a message may wait for something that has to be received
// first.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "runtime/base/types.h"

namespace distrun::backend::tcp {

enum class Place {
  kNothing,  // a message without payload (barrier)
  kInput,    // the operation's input, prescaled
  kOutput,   // the operation's output
  kPartial,  // a partial sum: received, combined with the own input, sent on
  kFinal,    // receive only: the last partial sum, combined with the own input and finished into the output
  kBlock,    // scratch that holds every member's whole (prescaled) input, in member order
};

struct Transfer {
  Place place = Place::kNothing;
  std::size_t begin = 0;  // elements
  std::size_t count = 0;
  std::size_t after = 0;  // of a send: so many messages must have been received before, for it carries what was in them
  bool keep = false;      // send from kInput only: the output needs a copy, at element out_at
  std::size_t out_at = 0;  // also of kFinal
};

class Schedule {
 public:
  virtual ~Schedule() = default;
  [[nodiscard]] virtual std::size_t sends() const = 0;
  [[nodiscard]] virtual std::size_t receives() const = 0;
  [[nodiscard]] virtual Transfer send(std::size_t i) const = 0;
  [[nodiscard]] virtual Transfer receive(std::size_t i) const = 0;
  // True when the inputs of all members are gathered in scratch first and each member reduces them for itself.
  [[nodiscard]] virtual bool gathers_blocks() const { return false; }
};

// The same on all members, or they would not understand each other (the handshake compares versions).
struct Tuning {
  std::size_t chunk_bytes = std::size_t{128} << 10;  // largest payload of a message; a chunk stays in the L2 cache
  std::size_t window = 4;                            // chunks of one block that are under way together
  std::size_t gather_bytes = std::size_t{32} << 10;  // allreduce: up to so many bytes of all members' inputs together
                                                     // take one trip around the ring instead of two
};

struct Task {
  OpKind kind = OpKind::kAllreduce;
  std::size_t size = 1;   // members
  std::size_t index = 0;  // this one
  std::size_t element_bytes = 1;
  std::size_t count = 0;  // elements (allgather, reducescatter: see counts)
  std::size_t root = 0;
  std::span<const std::size_t> counts;  // as in Operation
};

std::unique_ptr<Schedule> make_schedule(const Task& task, const Tuning& tuning);

}  // namespace distrun::backend::tcp
