// Operation's waits of the C++ header above a fake of the C API: what they make of each code.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <distrun/distrun.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

std::vector<std::int32_t> g_codes;  // what distrun_wait returns, in turn
std::size_t g_waits = 0;
std::size_t g_done_after = 0;  // so many waits
std::size_t g_waits_at_release = 0;
int g_aborts = 0;  // after the first one the operation is done at the next wait

int session_memory = 0;
distrun_session* const session = reinterpret_cast<distrun_session*>(&session_memory);

int handle_memory = 0;
distrun_handle* const handle = reinterpret_cast<distrun_handle*>(&handle_memory);

// The code that wait() throws, 0 if it returns.
int waited(std::vector<std::int32_t> codes, std::size_t done_after, double seconds = -1.0) {
  g_codes = std::move(codes);
  g_waits = 0;
  g_done_after = done_after;
  distrun::Operation operation(handle);
  try {
    operation.wait(seconds);
  } catch (const distrun::Error& error) {
    return error.code;
  }
  return 0;
}

}  // namespace

extern "C" {

int32_t distrun_wait(distrun_handle*, double) { return g_codes.at(g_waits++); }
distrun_session* distrun_current(void) { return session; }
int32_t distrun_abort(distrun_session* of, const char*) {
  CHECK(of == session);
  ++g_aborts;
  g_codes.push_back(DISTRUN_ABORTED);
  g_done_after = g_waits + 1;
  return DISTRUN_OK;
}
int32_t distrun_poll(distrun_handle*) { return g_waits >= g_done_after ? 1 : 0; }
void distrun_release(distrun_handle*) { g_waits_at_release = g_waits; }
void distrun_last_error(distrun_error* error) {
  *error = {};
  error->code = g_codes.at(g_waits - 1);
  error->message = error->tensor = error->host = error->cause = "";
}

}  // extern "C"

TEST_CASE("a wait that fails while the operation runs goes on, so that nobody frees its memory") {
  CHECK(waited({DISTRUN_OUT_OF_MEMORY, DISTRUN_INTERNAL, DISTRUN_INTERRUPTED, DISTRUN_OK}, 4) == 0);
  CHECK(g_waits == 4);
  CHECK(waited({DISTRUN_INTERNAL, DISTRUN_RANK_LOST}, 2) == DISTRUN_RANK_LOST);
  CHECK(waited({DISTRUN_OUT_OF_MEMORY, DISTRUN_OK}, 2, 60.0) == 0);
}

TEST_CASE("an operation's own lack of memory is told, and its success is where only the wait failed") {
  CHECK(waited({DISTRUN_OUT_OF_MEMORY, DISTRUN_OUT_OF_MEMORY}, 1) == DISTRUN_OUT_OF_MEMORY);
  CHECK(waited({DISTRUN_OUT_OF_MEMORY, DISTRUN_OK}, 1) == 0);
  CHECK(g_waits == 2);
}

TEST_CASE("a wait that fails has its limit all the same") {
  CHECK(waited({DISTRUN_INTERNAL, DISTRUN_OK}, 2, 0.0) == DISTRUN_INTERNAL);
  CHECK(waited({DISTRUN_TIMEOUT, DISTRUN_OK}, 2, 1.0) == DISTRUN_TIMEOUT);
}

TEST_CASE("an exception that passes waits for the operation, whose memory it frees next") {
  g_codes = {DISTRUN_INTERRUPTED, DISTRUN_OUT_OF_MEMORY, DISTRUN_RANK_LOST};
  g_waits = 0;
  g_done_after = 3;
  CHECK_THROWS_AS(
      [] {
        const distrun::Operation operation(handle);
        throw std::runtime_error("of the program");
      }(),
      std::runtime_error);
  CHECK(g_waits_at_release == 3);
}

TEST_CASE("the error of a wait that is over its limit leaves the operation's scope: the job is aborted first") {
  g_codes = {DISTRUN_TIMEOUT};
  g_waits = g_waits_at_release = 0;
  g_done_after = 100;
  g_aborts = 0;
  CHECK_THROWS_AS(
      [] {
        distrun::Operation operation(handle);
        distrun::Operation moved(std::move(operation));
        moved.wait(1.0);
      }(),
      distrun::Error);
  CHECK(g_aborts == 1);
  CHECK(g_waits_at_release == 2);
}

// Both end in another order than they were waited for, as in any scope with several operations in flight.
TEST_CASE("an operation that nobody has waited for does not hold the error of one that was given up") {
  g_codes = {GENERATE(DISTRUN_TIMEOUT, DISTRUN_OUT_OF_MEMORY, DISTRUN_INTERNAL)};
  g_waits = g_waits_at_release = 0;
  g_done_after = 100;
  g_aborts = 0;
  CHECK_THROWS_AS(
      [] {
        distrun::Operation first(handle);
        const distrun::Operation second(handle);
        first.wait(0.0);
      }(),
      distrun::Error);
  CHECK(g_aborts == 1);
  CHECK(g_waits_at_release == 2);
}

namespace {

struct WaitsAtItsEnd {
  ~WaitsAtItsEnd() {
    distrun::Operation operation(handle);
    CHECK_THROWS_AS(operation.wait(1.0), distrun::Error);
  }
};

}  // namespace

TEST_CASE("another exception that passes outside of the operation's scope aborts nothing, nor a later one") {
  g_codes = {DISTRUN_TIMEOUT, DISTRUN_OK, DISTRUN_OK};
  g_waits = 0;
  g_done_after = 2;
  g_aborts = 0;
  const auto passes = [] {
    const WaitsAtItsEnd waits;
    throw std::runtime_error("of the program");
  };
  CHECK_THROWS_AS(passes(), std::runtime_error);
  CHECK(g_waits == 2);
  g_done_after = 3;
  const auto later = [] {
    const distrun::Operation operation(handle);
    throw std::runtime_error("of the program, later");
  };
  CHECK_THROWS_AS(later(), std::runtime_error);
  CHECK(g_waits == 3);
  CHECK(g_aborts == 0);
}

TEST_CASE("who catches that error within the scope, or waits on, aborts nothing") {
  g_codes = {DISTRUN_TIMEOUT, DISTRUN_TIMEOUT, DISTRUN_OK};
  g_waits = 0;
  g_done_after = 3;
  g_aborts = 0;
  {
    distrun::Operation operation(handle);
    CHECK_THROWS_AS(operation.wait(1.0), distrun::Error);
    CHECK_THROWS_AS(operation.wait(1.0), distrun::Error);
  }
  CHECK(g_waits == 3);
  CHECK(g_aborts == 0);
}

TEST_CASE("an operation that is done, or none, is let go without a wait") {
  g_waits = g_done_after = 0;
  { const distrun::Operation operation(handle); }
  g_done_after = 1;
  { const distrun::Operation none; }
  CHECK(g_waits == 0);
}
