#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <vector>

#include "runtime/engine/agreement/call_board.h"

namespace distrun::engine {
namespace {

const TimePoint kThen = TimePoint{} + std::chrono::seconds(1000);

// A board for a world of `size` ranks. It knows which ranks take part in a call that only the members of a set make.
class Calls {
 public:
  explicit Calls(int size) : board_(size) {}

  void add(int rank, const std::vector<int>& members, bool unordered = true) {
    board_.add(rank, {.ranks = members, .members_only = true, .unordered = unordered}, members, kThen);
  }
  void drop(int rank, int set, const std::vector<int>& members) {
    board_.add(rank, {.kind = Call::Kind::kRemoveSet, .set = set, .unordered = true}, members, kThen);
  }
  // Returns the ranks of the next call that all of them have made, and ends this call.
  std::optional<std::vector<int>> next() {
    const auto taken = board_.take({});
    if (!taken) return std::nullopt;
    CHECK(taken->refused.ok());
    board_.end(taken->number);
    return taken->ranks;
  }
  [[nodiscard]] std::vector<CallBoard::Waiting> waiting() const { return board_.waiting(); }

 private:
  CallBoard board_;
};

TEST_CASE("unordered calls of a ring of ranks end, where calls in order would wait for one another") {
  Calls calls(3);
  for (int rank = 0; rank < 3; ++rank) {
    calls.add(rank, rank == 2 ? std::vector<int>{0, 2} : std::vector<int>{rank, rank + 1});
  }
  CHECK_FALSE(calls.next());
  calls.add(0, {0, 2});
  CHECK(calls.next() == std::vector<int>{0, 2});
  calls.add(2, {1, 2});
  CHECK(calls.next() == std::vector<int>{1, 2});
  calls.add(1, {0, 1});
  CHECK(calls.next() == std::vector<int>{0, 1});
  CHECK_FALSE(calls.next());
}

TEST_CASE("an unordered call and one in order do not wait for each other") {
  Calls calls(3);
  calls.add(0, {0, 1});
  calls.add(0, {0, 2}, false);
  calls.add(2, {0, 2}, false);
  CHECK(calls.next() == std::vector<int>{0, 2});
  calls.add(1, {1, 2}, false);
  calls.add(1, {0, 1});
  CHECK(calls.next() == std::vector<int>{0, 1});
  calls.add(2, {1, 2}, false);
  CHECK(calls.next() == std::vector<int>{1, 2});
}

TEST_CASE("of equal unordered calls each rank's first belong together") {
  Calls calls(2);
  calls.add(0, {0, 1});
  calls.add(0, {0, 1});
  CHECK_FALSE(calls.next());
  for (int i = 0; i < 2; ++i) {
    calls.add(1, {0, 1});
    CHECK(calls.next() == std::vector<int>{0, 1});
    CHECK_FALSE(calls.next());
  }
}

TEST_CASE("whom an unordered call waits for is known; a set that is dropped waits for nobody") {
  Calls calls(4);
  calls.add(3, {1, 3});
  calls.drop(0, 7, {0, 2});
  REQUIRE(calls.waiting().size() == 1);
  CHECK(calls.waiting()[0].missing == std::vector<int>{1});
  CHECK(calls.waiting()[0].what == "adding a process set of ranks 1, 3 by its members alone");
  calls.drop(2, 7, {0, 2});
  CHECK(calls.next() == std::vector<int>{0, 2});
  calls.add(1, {1, 3});
  CHECK(calls.next() == std::vector<int>{1, 3});
  CHECK(calls.waiting().empty());
}

}  // namespace
}  // namespace distrun::engine
