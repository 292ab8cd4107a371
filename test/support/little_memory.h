// For programs that replace operator new, to test what happens when memory runs out (link little_memory).
#pragma once

#include <utility>

namespace distrun::test {

// The number of allocations after which operator new throws on this thread; -1: no limit.
extern thread_local long allocations_left;

// While an object of this class lives, there is no limit. For code that is not under test.
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
