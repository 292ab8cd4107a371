// For programs that replace operator new, to see what happens where memory ends (link little_memory).
#pragma once

namespace distrun::test {

// Of this thread, after which operator new throws; -1: as many as there is memory for.
extern thread_local long allocations_left;

}  // namespace distrun::test
