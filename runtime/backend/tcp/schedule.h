// The messages that one member sends and receives for one operation on the ring (all operations except alltoall). Only
// numbers: the code is pure, so that a unit test can check a whole ring. Message i to the right neighbour is message i
// that this neighbour receives from its left. A member sends its messages in order. A message may have to wait until
// certain messages have been received.
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
  kPartial,  // a partial sum: received, combined with this member's input, sent on
  kFinal,    // receive only: the last partial sum; combined with this member's input and finished into the output
  kBlock,    // scratch with the whole (prescaled) inputs of all members, in member order
};

struct Transfer {
  Place place = Place::kNothing;
  std::size_t begin = 0;  // elements
  std::size_t count = 0;
  // For a send: number of messages that must have been received before, because this message carries their data.
  std::size_t after = 0;
  bool keep = false;       // only for a send from kInput: copy it to the output, at element out_at
  std::size_t out_at = 0;  // also used by kFinal
};

class Schedule {
 public:
  virtual ~Schedule() = default;
  [[nodiscard]] virtual std::size_t sends() const = 0;
  [[nodiscard]] virtual std::size_t receives() const = 0;
  [[nodiscard]] virtual Transfer send(std::size_t i) const = 0;
  [[nodiscard]] virtual Transfer receive(std::size_t i) const = 0;
  // True if the inputs of all members are first gathered in scratch memory, and each member then reduces them itself.
  [[nodiscard]] virtual bool gathers_blocks() const { return false; }
};

// Must be the same on all members, otherwise their messages do not match. (The handshake compares versions.)
struct Tuning {
  std::size_t chunk_bytes = std::size_t{128} << 10;  // largest payload of a message; a chunk fits the L2 cache
  std::size_t window = 4;                            // chunks of one block that are in flight together
  // allreduce: if the inputs of all members together have at most this size, they make one trip around the ring instead
  // of two.
  std::size_t gather_bytes = std::size_t{32} << 10;
};

struct Task {
  OpKind kind = OpKind::kAllreduce;
  std::size_t size = 1;   // members
  std::size_t index = 0;  // this member
  std::size_t element_bytes = 1;
  std::size_t count = 0;  // elements (for allgather and reducescatter, `counts` is used)
  std::size_t root = 0;
  std::span<const std::size_t> counts;  // see Operation
};

std::unique_ptr<Schedule> make_schedule(const Task& task, const Tuning& tuning);

}  // namespace distrun::backend::tcp
