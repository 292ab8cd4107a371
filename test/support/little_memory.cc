#include "test/support/little_memory.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace distrun::test {

thread_local long allocations_left = -1;

}  // namespace distrun::test

using distrun::test::allocations_left;

void* operator new(std::size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
