#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "runtime/api/c/error.h"
#include "test/support/little_memory.h"

namespace distrun::api {
namespace {

TEST_CASE("where no memory is left the code and the text say so, and no exception leaves", "[api]") {
  std::int32_t thrown = 0;
  std::int32_t wrapped = 0;
  test::allocations_left = 0;
  try {
    thrown = guarded([]() -> Status { return {Errc::kTimeout, std::string(1000, 'x')}; });
    struct Bug : std::exception {
      [[nodiscard]] const char* what() const noexcept override { return "a text that needs memory of its own"; }
    };
    wrapped = guarded([]() -> Status { throw Bug(); });
  } catch (...) {
    thrown = -1;
  }
  test::allocations_left = -1;
  CHECK(thrown == DISTRUN_OUT_OF_MEMORY);
  CHECK(wrapped == DISTRUN_OUT_OF_MEMORY);
  CHECK(last_error().message() == "out of memory");
}

TEST_CASE("a bug of ours is told with its text", "[api]") {
  CHECK(guarded([]() -> Status { throw std::logic_error("seven is not eight"); }) == DISTRUN_INTERNAL);
  CHECK(last_error().message() == "a bug in distrun, please report it: seven is not eight");
}

// It is constructed before the first failure and so destroyed after the thread's own variables. Static objects behave
// in the same way when the process ends.
struct FailsLate {
  ~FailsLate() {
    (void)report({Errc::kTimeout, "a text that is told after the end of the thread's own variables"});
    *code = static_cast<int>(last_error().code());
  }
  std::atomic<int>* code = nullptr;
};

TEST_CASE("what fails after the thread's variables have ended is told too", "[api]") {
  std::atomic<int> code{0};
  std::thread([&] {
    thread_local FailsLate late;
    late.code = &code;
    (void)report({Errc::kRankLost, "a text that the thread's end lets go of, and that is long enough"});
  }).join();
  CHECK(code == static_cast<int>(Errc::kTimeout));
}

}  // namespace
}  // namespace distrun::api
