// The waits of the C++ headers over a fake of the C API: the effect of each code.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <distrun/distrun.hpp>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

std::vector<std::int32_t> g_codes;  // results of distrun_wait, in order
std::size_t g_waits = 0;
std::size_t g_done_after = 0;  // complete after this many waits
int g_done_after_polls = -1;   // or after this many polls without a result; -1: never by polls
std::size_t g_waits_at_release = 0;
int g_aborts = 0;  // after the first one, the operation is complete at the next wait
std::string g_aborted_at;

int session_memory = 0;
distrun_session* const session = reinterpret_cast<distrun_session*>(&session_memory);

int handle_memory[2] = {};
distrun_handle* const handle = reinterpret_cast<distrun_handle*>(&handle_memory[0]);
// Another operation. A wait for it returns this code. It is complete unless the code is that of the time limit.
distrun_handle* const other_handle = reinterpret_cast<distrun_handle*>(&handle_memory[1]);
std::int32_t g_other_code = DISTRUN_TIMEOUT;

// The code of the error that wait() throws, or 0 if it returns.
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

int32_t distrun_wait(distrun_handle* of, double) { return of == other_handle ? g_other_code : g_codes.at(g_waits++); }
int32_t distrun_wait_all(distrun_handle* const*, uint64_t, double, uint64_t*) { return g_codes.at(g_waits++); }
int32_t distrun_wait_any(distrun_handle* const* handles, uint64_t count, double, uint64_t* index) {
  const int32_t code = g_codes.at(g_waits++);
  *index = count;
  for (uint64_t i = 0; i < count && g_waits >= g_done_after; ++i) {
    if (handles[i] != nullptr) *index = i;
  }
  return code;
}
distrun_session* distrun_current(void) { return session; }
int32_t distrun_abort(distrun_session* of, const char*) {
  CHECK(of == session);
  ++g_aborts;
  g_codes.push_back(DISTRUN_ABORTED);
  g_done_after = g_waits + 1;
  return DISTRUN_OK;
}
int32_t distrun_abort_at(distrun_session* of, const char*, const char* file, int32_t line, const char*) {
  CHECK(of == session);
  g_aborted_at = file + (":" + std::to_string(line));
  return DISTRUN_OK;
}
int32_t distrun_get_world(distrun_session*, distrun_world*) { return DISTRUN_OK; }
int32_t distrun_shutdown(distrun_session*) { return DISTRUN_OK; }
void distrun_close(distrun_session*) {}
int32_t distrun_poll(distrun_handle* of) {
  if (of == handle && g_done_after_polls == 0) return 1;
  if (of == handle && g_done_after_polls > 0) --g_done_after_polls;
  return (of == other_handle ? g_other_code != DISTRUN_TIMEOUT : g_waits >= g_done_after) ? 1 : 0;
}
void distrun_release(distrun_handle*) { g_waits_at_release = g_waits; }
void distrun_last_error(distrun_error* error) {
  *error = {};
  error->code = g_waits == 0 ? g_other_code : g_codes.at(g_waits - 1);
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

// Operations are destroyed in another order than they were waited for, as in any scope with several of them in flight.
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

namespace {

void begin(std::vector<std::int32_t> codes, std::size_t done_after) {
  g_codes = std::move(codes);
  g_waits = g_waits_at_release = 0;
  g_done_after = done_after;
  g_aborts = 0;
}

// The exception that wait(1.0) throws on another thread.
std::exception_ptr waited_elsewhere(distrun::Operation& operation) {
  std::exception_ptr thrown;
  std::thread([&] {
    try {
      operation.wait(1.0);
    } catch (const distrun::Error&) {
      thrown = std::current_exception();
    }
  }).join();
  return thrown;
}

}  // namespace

TEST_CASE(
    "the error of a wait on another thread, thrown here: an operation that nobody has waited for does not hold it") {
  begin({DISTRUN_TIMEOUT}, 100);
  const bool in_other_words = GENERATE(false, true);
  CHECK_THROWS_AS(
      [&] {
        distrun::Operation first(handle);
        const distrun::Operation second(handle);
        const std::exception_ptr thrown = waited_elsewhere(first);
        if (in_other_words) throw std::runtime_error("of the program");
        std::rethrow_exception(thrown);
      }(),
      std::runtime_error);
  CHECK(g_aborts == 1);
  CHECK(g_waits_at_release == 2);
}

TEST_CASE("an operation that two other threads have submitted and given up does not hold an exception either") {
  begin({DISTRUN_TIMEOUT}, 100);
  CHECK_THROWS_AS(
      [] {
        distrun::Operation operation;
        std::thread([&] { operation = distrun::Operation(handle); }).join();
        std::rethrow_exception(waited_elsewhere(operation));
      }(),
      distrun::Error);
  CHECK(g_aborts == 1);
}

TEST_CASE("what another thread submits and gives up is no reason to abort for an exception of this one's") {
  begin({DISTRUN_TIMEOUT, DISTRUN_OK}, 2);
  distrun::Operation theirs;
  std::thread([&] {
    theirs = distrun::Operation(handle);
    CHECK_THROWS_AS(theirs.wait(1.0), distrun::Error);
  }).join();
  const auto passes = [] {
    const distrun::Operation own(handle);
    throw std::runtime_error("of the program");
  };
  CHECK_THROWS_AS(passes(), std::runtime_error);
  CHECK(g_waits == 2);
  CHECK(g_aborts == 0);
}

TEST_CASE("what was given up here and has ended on another thread counts no more") {
  begin({DISTRUN_TIMEOUT, DISTRUN_TIMEOUT, DISTRUN_OK, DISTRUN_OK}, 100);
  {
    distrun::Operation first(handle);
    CHECK_THROWS_AS(first.wait(1.0), distrun::Error);
    distrun::Operation second(handle);
    CHECK_THROWS_AS(second.wait(1.0), distrun::Error);
    g_done_after = 3;
    std::thread([moved = std::move(first)]() mutable { moved = distrun::Operation(); }).join();
    std::thread([moved = std::move(second)] {}).join();
  }
  g_done_after = 4;
  const auto passes = [] {
    const distrun::Operation later(handle);
    throw std::runtime_error("of the program");
  };
  CHECK_THROWS_AS(passes(), std::runtime_error);
  CHECK(g_waits == 4);
  CHECK(g_aborts == 0);
}

TEST_CASE("what was given up and has come all the same is no reason to abort") {
  begin({DISTRUN_OK}, 1);
  g_other_code = DISTRUN_TIMEOUT;
  const auto passes = [] {
    distrun::Operation late(other_handle);
    CHECK_THROWS_AS(late.wait(1.0), distrun::Error);
    g_other_code = DISTRUN_OK;
    const distrun::Operation other(handle);
    throw std::runtime_error("of the program");
  };
  CHECK_THROWS_AS(passes(), std::runtime_error);
  CHECK(g_waits == 1);
  CHECK(g_aborts == 0);
}

TEST_CASE("who asks again and again gives up nothing") {
  begin({DISTRUN_TIMEOUT, DISTRUN_TIMEOUT, DISTRUN_OK}, 3);
  const auto passes = [] {
    distrun::Operation operation(handle);
    CHECK_FALSE(operation.wait_for(0.0));
    CHECK_FALSE(operation.wait_for(1.0));
    throw std::runtime_error("of the program");
  };
  CHECK_THROWS_AS(passes(), std::runtime_error);
  CHECK(g_waits == 3);
  CHECK(g_aborts == 0);
}

TEST_CASE("an operation that is done at the end of the limit is told as it is") {
  begin({DISTRUN_TIMEOUT, DISTRUN_OK, DISTRUN_TIMEOUT, DISTRUN_MISMATCH, DISTRUN_TIMEOUT, DISTRUN_TIMEOUT,
         DISTRUN_TIMEOUT},
        1);
  distrun::Operation operation(handle);
  CHECK(operation.wait_for(0.0));
  CHECK_THROWS_AS(operation.wait_for(0.0), distrun::Error);
  CHECK_THROWS_AS(operation.wait_for(0.0), distrun::Error);  // the operation's own error, from stall_shutdown_time
  CHECK(g_waits == g_codes.size());
}

TEST_CASE("an operation that is done in any moment after the limit is told as it is to who asks again and again") {
  for (const int looks : {0, 1, 2}) {
    CAPTURE(looks);
    begin({DISTRUN_TIMEOUT, DISTRUN_OK}, 100);
    distrun::Operation operation(handle);
    g_done_after_polls = looks;
    bool done = false;
    CHECK_NOTHROW(done = operation.wait_for(0.0));
    CHECK(done == (looks < 2));
    g_done_after_polls = 0;
  }
  g_done_after_polls = -1;
}

TEST_CASE("a wait for all that is over its limit gives up each, and its error leaves their scope") {
  begin({DISTRUN_INTERRUPTED, DISTRUN_TIMEOUT}, 100);
  CHECK_THROWS_AS(
      [] {
        std::vector<distrun::Operation> operations(1);
        operations.emplace_back(handle);
        operations.emplace_back(handle);
        distrun::wait_all(operations, 1.0);
      }(),
      distrun::Error);
  CHECK(g_aborts == 1);
  CHECK(g_waits_at_release == 3);
  begin({DISTRUN_OUT_OF_MEMORY, DISTRUN_MISMATCH}, 2);
  std::vector<distrun::Operation> operations(1);
  operations.emplace_back(handle);
  CHECK_THROWS_AS(distrun::wait_all(operations), distrun::Error);
  CHECK(g_waits == 2);
}

TEST_CASE("a wait for any gives the place of one that is done, whatever its result, or gives up all") {
  begin({DISTRUN_INTERNAL, DISTRUN_MISMATCH}, 2);
  {
    std::vector<distrun::Operation> operations(2);
    operations[1] = distrun::Operation(handle);
    CHECK(distrun::wait_any(operations, 60.0) == 1);
    CHECK(g_waits == 2);
  }
  begin({DISTRUN_TIMEOUT}, 100);
  CHECK_THROWS_AS(
      [] {
        std::vector<distrun::Operation> operations;
        operations.emplace_back(handle);
        operations.emplace_back(handle);
        (void)distrun::wait_any(operations, 1.0);
      }(),
      distrun::Error);
  CHECK(g_aborts == 1);
}

TEST_CASE("threads that give up, move and let go at once keep one list") {
  g_other_code = DISTRUN_TIMEOUT;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([] {
      for (int i = 0; i < 2000; ++i) {
        distrun::detail::GivenUp first;
        first.mark(other_handle);
        distrun::detail::GivenUp second(std::move(first));
        second.mark(other_handle);
        distrun::detail::GivenUp third;
        third = std::move(second);
        if (i % 2 == 0) third.clear();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  begin({DISTRUN_OK}, 1);
  const auto passes = [] {
    const distrun::Operation operation(handle);
    throw std::runtime_error("of the program");
  };
  CHECK_THROWS_AS(passes(), std::runtime_error);
  CHECK(g_aborts == 0);
}

TEST_CASE("an operation that is done, or none, is let go without a wait") {
  g_waits = g_done_after = 0;
  { const distrun::Operation operation(handle); }
  g_done_after = 1;
  { const distrun::Operation none; }
  CHECK(g_waits == 0);
}

TEST_CASE("a session's abort tells the line that calls it") {
  distrun::Session::current().abort("the disk is full");
  CHECK(g_aborted_at == __FILE__ + (":" + std::to_string(__LINE__ - 1)));
}
