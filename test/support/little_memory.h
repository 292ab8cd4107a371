// For programs that replace operator new, to see what happens where memory ends (link little_memory).
#pragma once

#include <utility>

namespace distrun::test {

// Of this thread, after which operator new throws; -1: as many as there is memory for.
extern thread_local long allocations_left;

// While it lives there is memory, for what is not tested.
class PlentyOfMemory {
 public:
  PlentyOfMemory() = default;
  PlentyOfMemory(const PlentyOfMemory&) = delete;
  PlentyOfMemory& operator=(const PlentyOfMemory&) = delete;
  ~PlentyOfMemory() { allocations_left = before_; }

 private:
  long before_ = std::exchange(allocations_left, -1);
};

}  // namespace distrun::test
