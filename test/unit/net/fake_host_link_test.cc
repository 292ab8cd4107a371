#include "test/support/fake_host_link.h"

#include <catch2/catch_test_macros.hpp>

#include "test/support/ranks.h"

namespace distrun::test {
namespace {

TEST_CASE("all threads of a fake host share one zeroed memory per share") {
  FakeHost host(3, {.first_rank = 4});
  net::SharedBytes shares[3][2];  // kept, so that every share has a different address
  run_ranks(3, [&](int index) {
    auto link = host.link(index, nullptr);
    EXPECT_EQ(link->ranks().size(), std::size_t{3});
    EXPECT_EQ(link->ranks()[2], 6);
    for (int nth = 0; nth < 2; ++nth) {
      auto memory = link->share("window", {4, 5, 6}, 5000, deadline_after(30));
      EXPECT_OK(memory);
      EXPECT_EQ(memory->bytes.size(), std::size_t{5000});
      for (const std::byte b : memory->bytes) EXPECT(b == std::byte{0});
      shares[index][nth] = *memory;
    }
  });
  CHECK(shares[0][0].bytes.data() == shares[1][0].bytes.data());
  CHECK(shares[0][0].bytes.data() == shares[2][0].bytes.data());
  CHECK(shares[0][1].bytes.data() == shares[2][1].bytes.data());
  CHECK(shares[0][0].bytes.data() != shares[0][1].bytes.data());
}

TEST_CASE("a fake host can refuse memory") {
  FakeHost host(1, {.share_error = "no memory"});
  auto link = host.link(0, nullptr);
  const auto memory = link->share("window", {0}, 64, deadline_after(1));
  CHECK(memory.status().code() == Errc::kOutOfMemory);
}

}  // namespace
}  // namespace distrun::test
