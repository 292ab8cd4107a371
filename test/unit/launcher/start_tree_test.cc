#include "launcher/plan/place/start_tree.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>

namespace distrun::launcher {
namespace {

using Starters = std::vector<int>;
constexpr int kHead = kHeadStarts;

std::vector<bool> by_ssh(std::size_t hosts) { return std::vector<bool>(hosts, true); }

int depth(const Starters& starters, int host) {
  int out = 1;
  for (int at = starters[static_cast<std::size_t>(host)]; at != kHead; at = starters[static_cast<std::size_t>(at)])
    ++out;
  return out;
}

TEST_CASE("up to the fan-out the head starts all") {
  CHECK(start_tree({}, 32).empty());
  CHECK(start_tree(by_ssh(32), 32) == Starters(32, kHead));
  CHECK(tree_reason(start_tree(by_ssh(32), 32), 32).empty());
}

TEST_CASE("one more is started by the first, and more are spread evenly") {
  Starters expected(33, kHead);
  expected[32] = 0;
  CHECK(start_tree(by_ssh(33), 32) == expected);
  CHECK(start_tree(by_ssh(5), 2) == Starters{kHead, kHead, 0, 0, 1});
  CHECK(start_tree(by_ssh(8), 2) == Starters{kHead, kHead, 0, 0, 1, 1, 2, 4});
  CHECK(tree_reason(start_tree(by_ssh(5), 2), 2) ==
        "agents: 2 of 5 are started from this machine, the others by hosts that already have an agent, at most 2 by "
        "each");
}

TEST_CASE("hosts that ssh does not start are the head's and start nobody") {
  CHECK(start_tree({false, true, true, false, true}, 1) == Starters{kHead, kHead, 1, kHead, 2});
}

TEST_CASE("nobody starts more than the fan-out, and the tree is no deeper than it must be") {
  for (const int hosts : {33, 64, 1000, 1056, 1057, 5000}) {
    const Starters starters = start_tree(by_ssh(static_cast<std::size_t>(hosts)), 32);
    std::map<int, int> children;
    int deepest = 0;
    for (int host = 0; host < hosts; ++host) {
      ++children[starters[static_cast<std::size_t>(host)]];
      REQUIRE(starters[static_cast<std::size_t>(host)] < host);
      deepest = std::max(deepest, depth(starters, host));
    }
    for (const auto& [starter, count] : children) CHECK(count <= 32);
    CHECK(deepest == (hosts <= 32 + 32 * 32 ? 2 : 3));
  }
}

}  // namespace
}  // namespace distrun::launcher
