// The executor's record of the operations in flight after an exception in its turn.
#include "runtime/engine/run/executor.h"

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace distrun::engine {
namespace {

// Moves nothing. Started operations all complete in one turn, when the test says so.
class SlowBackend final : public backend::Backend {
 public:
  std::function<void()> on_start = [] {};
  bool ends = false;
  int turns = 0;

  [[nodiscard]] std::string_view name() const override { return "slow"; }
  [[nodiscard]] const backend::Capabilities& capabilities() const override { return capabilities_; }
  Status start(const backend::Operation&, std::uint64_t token) override {
    on_start();
    tokens_.push_back(token);
    return {};
  }
  bool progress() override {
    ++turns;
    return false;
  }
  void completed(std::vector<backend::Completed>& out) override {
    if (!ends) return;
    for (const std::uint64_t token : std::exchange(tokens_, {})) out.push_back({.token = token, .status = {}});
  }
  void abort(const Status&) override {}
  [[nodiscard]] std::optional<EndedLink> lost_peer() const override { return std::nullopt; }

 private:
  const backend::Capabilities capabilities_{.ops = ~0U, .dtypes = ~0U, .devices = 1, .scatter_gather = true};
  std::vector<std::uint64_t> tokens_;
};

class ThrowsOnce final : public ExecutionObserver {
 public:
  void ran(const Tensor&, TimePoint, TimePoint, TimePoint) override {
    if (!std::exchange(thrown_, true)) throw std::bad_alloc();
  }

 private:
  bool thrown_ = false;
};

// A rank with this many sets; the last one is used.
struct Running {
  ProcessSets sets{0};
  Executor executor{sets, false};
  ProcessSet* set = nullptr;
  SlowBackend* backend = nullptr;
  std::vector<Completion> done;
  std::vector<float> memory = std::vector<float>(4);

  explicit Running(int count = 1) {
    for (int id = 0; id < count; ++id) {
      set = &sets.add(id, {0, 1});
      auto slow = std::make_unique<SlowBackend>();
      backend = slow.get();
      set->backends.push_back(std::move(slow));
    }
  }
  // Turns of all sets except the last.
  int turns_of_others() {
    int turns = 0;
    for (auto& [id, other] : sets.all()) {
      if (&other != set) turns += dynamic_cast<SlowBackend&>(*other.backends.front()).turns;
    }
    return turns;
  }
  void run(const std::string& name) {
    const Submission one{.name = name, .shape = {4}, .input = memory.data(), .output = memory.data()};
    auto tensor = std::make_shared<Tensor>(one, Signature{.shape = {4}}, Clock::now());
    executor.run(*set, {{.tensor = std::move(tensor), .first_dims = {}}}, done);
  }
};

TEST_CASE("an exception over one of the operations that have ended together loses none of the others") {
  Running running;
  ThrowsOnce observer;
  running.executor.observe(&observer);
  for (const char* name : {"a", "b", "c"}) running.run(name);
  running.backend->ends = true;
  CHECK_THROWS_AS(running.executor.progress(running.done, false), std::bad_alloc);
  CHECK(running.executor.moving());
  running.executor.progress(running.done, false);
  CHECK(running.executor.idle());
  REQUIRE(running.done.size() == 2);
  CHECK(running.done[0].tensor->submission().name == "b");
  CHECK(running.done[1].tensor->submission().name == "c");
}

TEST_CASE("a turn costs nothing for sets that have nothing in flight, unless it is for all") {
  Running running(100);
  running.run("a");
  running.run("b");
  CHECK(running.executor.in_flight(99) == 2);
  REQUIRE(running.executor.active().size() == 1);
  CHECK(running.executor.active().front() == running.set);
  for (int turn = 0; turn < 3; ++turn) running.executor.progress(running.done, false);
  CHECK(running.backend->turns == 3);
  CHECK(running.turns_of_others() == 0);
  running.executor.progress(running.done, true);
  CHECK(running.turns_of_others() == 99);
  running.backend->ends = true;
  running.executor.progress(running.done, false);
  CHECK(running.done.size() == 2);
  CHECK(running.executor.in_flight(99) == 0);
  CHECK(running.executor.active().empty());
}

TEST_CASE("after an abort every backend has its turn, so that its peers hear of it") {
  Running running(100);
  running.executor.abort({Errc::kAborted, "the end"});
  running.executor.progress(running.done, false);
  CHECK(running.turns_of_others() == 99);
}

TEST_CASE("an operation is kept before its backend has it, and not if that throws") {
  Running running;
  bool kept = false;
  running.backend->on_start = [&] { kept = running.executor.moving(); };
  running.run("a");
  CHECK(kept);
  running.backend->on_start = [] { throw std::bad_alloc(); };
  CHECK_THROWS_AS(running.run("b"), std::bad_alloc);
  running.backend->ends = true;
  running.executor.progress(running.done, false);
  CHECK(running.executor.idle());
  REQUIRE(running.done.size() == 1);
  CHECK(running.done[0].tensor->submission().name == "a");
}

}  // namespace
}  // namespace distrun::engine
