#include "runtime/base/system/huge_pages.h"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>

#include "test/support/page_advice.h"

using distrun::kOwnMapping;
using distrun::test::wants_huge_pages;

namespace {

constexpr std::size_t kHugePage = 2U << 20U;
constexpr std::size_t kPages = kOwnMapping / kHugePage;

// The start of the first huge page in `memory`, which has room for kOwnMapping and three more huge pages.
std::byte* aligned(const distrun::test::Fresh& memory) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (kHugePage - begin % kHugePage) % kHugePage;
}

}  // namespace

TEST_CASE("huge pages: those that lie whole in a large block") {
  if (!distrun::test::has_huge_pages()) SKIP("this kernel has no transparent huge pages");
  const distrun::test::Fresh memory(kOwnMapping + 4 * kHugePage);
  std::byte* const page = aligned(memory);
  distrun::prefer_huge_pages(page + 1, kOwnMapping + kHugePage);
  CHECK_FALSE(wants_huge_pages(page));
  CHECK(wants_huge_pages(page + kHugePage));
  CHECK(wants_huge_pages(page + kPages * kHugePage));
  CHECK_FALSE(wants_huge_pages(page + (kPages + 1) * kHugePage));
}

TEST_CASE("huge pages: none in a block that malloc may have had before") {
  const distrun::test::Fresh memory(kOwnMapping + 4 * kHugePage);
  std::byte* const page = aligned(memory);
  distrun::prefer_huge_pages(page, kOwnMapping);
  distrun::prefer_huge_pages(nullptr, 0);
  for (std::size_t i = 0; i < kPages; ++i) CHECK_FALSE(wants_huge_pages(page + i * kHugePage));
}
