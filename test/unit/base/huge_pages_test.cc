#include "runtime/base/huge_pages.h"

#include <sys/mman.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>

#include "test/support/page_advice.h"

namespace {

constexpr std::size_t kHugePage = 2U << 20U;
constexpr std::size_t kSize = 4 * kHugePage;

// Four huge pages' worth of memory that nothing has touched, aligned as they are, in a mapping of twice that.
class Fresh {
 public:
  Fresh() : all_(::mmap(nullptr, 2 * kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(all_ != MAP_FAILED);
  }
  ~Fresh() { ::munmap(all_, 2 * kSize); }
  Fresh(const Fresh&) = delete;
  Fresh& operator=(const Fresh&) = delete;

  [[nodiscard]] std::byte* at(std::size_t page) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(all_);
    return static_cast<std::byte*>(all_) + (kHugePage - begin % kHugePage) % kHugePage + page * kHugePage;
  }

 private:
  void* all_;
};

}  // namespace

TEST_CASE("huge pages: those that lie whole in the memory") {
  const Fresh memory;
  distrun::prefer_huge_pages(memory.at(0) + 1, 3 * kHugePage);
  CHECK_FALSE(distrun::test::wants_huge_pages(memory.at(0)));
  CHECK(distrun::test::wants_huge_pages(memory.at(1)));
  CHECK(distrun::test::wants_huge_pages(memory.at(2)));
  CHECK_FALSE(distrun::test::wants_huge_pages(memory.at(3)));
}

TEST_CASE("huge pages: none in memory that holds no whole one") {
  const Fresh memory;
  distrun::prefer_huge_pages(memory.at(0) + 1, 2 * kHugePage - 2);
  distrun::prefer_huge_pages(memory.at(2), kHugePage - 1);
  distrun::prefer_huge_pages(nullptr, 0);
  for (std::size_t page = 0; page < 4; ++page) CHECK_FALSE(distrun::test::wants_huge_pages(memory.at(page)));
}
