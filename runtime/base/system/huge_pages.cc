#include "runtime/base/system/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace distrun {
namespace {

constexpr std::uintptr_t kHugePage = 2U << 20U;  // on x86-64, and on 64-bit Arm with 4 KiB pages

}  // namespace

void prefer_huge_pages(std::byte* memory, std::size_t bytes) {
  if (bytes <= kOwnMapping) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t last = (begin + bytes) / kHugePage * kHugePage;
  // An error means that this kernel has no huge pages. The call is only advice, so the result does not matter.
  static_cast<void>(::madvise(memory + (first - begin), last - first, MADV_HUGEPAGE));
}

}  // namespace distrun
