// How the C API handles the structs of its callers, in a world of size 1.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <utility>

#include "distrun/distrun.h"
#include "runtime/api/session.h"

namespace distrun::api {

distrun_op made_below_a_wrapped_header();  // wrapped_header.cc

namespace {

// A session that is open while it lives.
class World {
 public:
  World() { REQUIRE(distrun_init(nullptr, &session_) == DISTRUN_OK); }
  ~World() { distrun_close(session_); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  [[nodiscard]] distrun_session* get() const { return session_; }

 private:
  distrun_session* session_ = nullptr;
};

std::string last_message() {
  distrun_error error = DISTRUN_INIT(distrun_error);
  distrun_last_error(&error);
  return error.message;
}

distrun_op alltoall(const char* name, const std::array<std::int64_t, 1>& shape, const float* input) {
  distrun_op op = {};
  op.kind = DISTRUN_ALLTOALL;
  op.name = name;
  op.dtype = DISTRUN_FLOAT32;
  op.shape = shape.data();
  op.ndim = 1;
  op.input = input;
  op.prescale = op.postscale = 1.0;
  op.group = -1;
  return op;
}

TEST_CASE("an init that is refused while a session is open leaves that one to its caller") {
  const World world;
  distrun_session* session = world.get();
  CHECK(distrun_init(nullptr, &session) == DISTRUN_INVALID_ARGUMENT);
  CHECK(session == world.get());
  CHECK(last_message().find("this process has a session already") != std::string::npos);
}

TEST_CASE("a library finds the session that is open, and none before, after, or in a forked child") {
  CHECK(distrun_current() == nullptr);
  {
    const World world;
    CHECK(distrun_current() == world.get());
    distrun_session* second = nullptr;
    CHECK(distrun_init(nullptr, &second) == DISTRUN_INVALID_ARGUMENT);
    CHECK(last_message().find("Use it (distrun_current)") != std::string::npos);
    CHECK(distrun_current() == world.get());
    const pid_t child = ::fork();
    if (child == 0) ::_exit(distrun_current() == nullptr ? 0 : 1);
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    REQUIRE(distrun_shutdown(world.get()) == DISTRUN_OK);
    CHECK(distrun_current() == world.get());
  }
  CHECK(distrun_current() == nullptr);
}

TEST_CASE("a process set of a later session has a number that no earlier one had") {
  const std::int32_t self = 0;
  std::set<std::int32_t> numbers;
  for (int session = 0; session < 3; ++session) {
    const World world;
    for (int set = 0; set < 2; ++set) {
      std::int32_t number = -1;
      REQUIRE(distrun_process_set_add(world.get(), &self, 1, &number) == DISTRUN_OK);
      CHECK(number > 0);
      numbers.insert(number);
    }
    REQUIRE(distrun_shutdown(world.get()) == DISTRUN_OK);
  }
  CHECK(numbers.size() == 6);
}

TEST_CASE("a time limit that passes before the job's store is known ends the job for this rank all the same") {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const Fd rank(ends[0]);
  const Fd silent(ends[1]);  // acts like a stopped process manager
  const auto opened = Session::open({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", std::to_string(ends[0])}},
                                    {"start_timeout=1"}, nullptr);
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.status().code() == Errc::kTimeout);
  CHECK_FALSE(opened.status().info().usable);
}

TEST_CASE("a setting that is NULL is refused by its index, and so are no settings where some are said to be") {
  const std::array<const char*, 2> settings = {"log-level=info", nullptr};
  distrun_options options = DISTRUN_INIT(distrun_options);
  options.num_settings = 2;
  auto* session = reinterpret_cast<distrun_session*>(&options);  // not a session
  CHECK(distrun_init(&options, &session) == DISTRUN_INVALID_ARGUMENT);
  CHECK(session == nullptr);
  options.settings = settings.data();
  CHECK(distrun_init(&options, &session) == DISTRUN_INVALID_ARGUMENT);
  CHECK(last_message() == "options.settings[1] is NULL. Write it as name=value");
  const World world;  // the failed calls must not block this one
}

TEST_CASE("the first operation's struct_size counts for all that are handed over with it") {
  const World world;
  const std::array<float, 3> rows = {1, 2, 3};
  const std::array<std::int64_t, 1> shape = {3};
  const std::array<std::int64_t, 1> splits = {2};
  std::array<distrun_op, 2> ops = {alltoall("first", shape, rows.data()), alltoall("second", shape, rows.data())};
  for (distrun_op& op : ops) {
    op.splits = splits.data();
    op.num_splits = 1;
  }
  ops[0].struct_size = sizeof(distrun_op);  // as `{DISTRUN_INIT(distrun_op)}` does
  std::array<distrun_handle*, 2> handles = {};
  REQUIRE(distrun_enqueue(world.get(), ops.data(), ops.size(), handles.data()) == DISTRUN_OK);
  REQUIRE(distrun_wait_all(handles.data(), handles.size(), 30, nullptr) == DISTRUN_OK);
  for (distrun_handle* handle : handles) {
    distrun_result result = DISTRUN_INIT(distrun_result);
    REQUIRE(distrun_get_result(handle, &result) == DISTRUN_OK);
    CHECK(result.shape[0] == 2);
    distrun_release(handle);
  }
}

distrun_op allreduce(const char* name, float& value) {
  static constexpr std::array<std::int64_t, 1> kOne = {1};
  distrun_op op = alltoall(name, kOne, &value);
  op.struct_size = sizeof(op);
  op.kind = DISTRUN_ALLREDUCE;
  op.output = &value;
  return op;
}

TEST_CASE("wait_any gives each operation once to who makes NULL of what it has given") {
  const World world;
  std::array<float, 2> values = {1, 2};
  const std::array<distrun_op, 2> ops = {allreduce("first", values[0]), allreduce("second", values[1])};
  std::array<distrun_handle*, 3> handles = {};  // the middle one belongs to no operation
  for (const std::size_t i : {0U, 1U}) {
    REQUIRE(distrun_enqueue(world.get(), &ops.at(i), 1, &handles.at(2 * i)) == DISTRUN_OK);
  }
  std::uint64_t failed = 77;
  CHECK(distrun_wait_all(handles.data(), handles.size(), 30, &failed) == DISTRUN_OK);
  CHECK(failed == handles.size());
  for (const std::uint64_t expected : {0U, 2U}) {
    std::uint64_t index = 77;
    REQUIRE(distrun_wait_any(handles.data(), handles.size(), 30, &index) == DISTRUN_OK);
    REQUIRE(index == expected);
    distrun_release(std::exchange(handles.at(index), nullptr));
  }
  std::uint64_t index = 77;
  CHECK(distrun_wait_any(handles.data(), handles.size(), 30, &index) == DISTRUN_INVALID_ARGUMENT);
  CHECK(index == handles.size());
  CHECK(distrun_wait_all(handles.data(), handles.size(), 30, nullptr) == DISTRUN_INVALID_ARGUMENT);
  CHECK(last_message() == "all handles are NULL");
}

TEST_CASE("an abort ends the job with its cause, however little else is known of it") {
  CHECK(distrun_abort_at(nullptr, "why", "train.c", 8, "grad") == DISTRUN_NOT_INITIALIZED);
  for (const char* cause : {static_cast<const char*>(nullptr), "the disk is full"}) {
    const World world;
    REQUIRE(distrun_abort_at(world.get(), cause, nullptr, 0, nullptr) == DISTRUN_OK);
    REQUIRE(distrun_shutdown(world.get()) == DISTRUN_ABORTED);
    distrun_error error = DISTRUN_INIT(distrun_error);
    distrun_last_error(&error);
    CHECK(std::string(error.cause) == (cause == nullptr ? "aborted by the program" : cause));
  }
}

TEST_CASE("the header may be included below extern \"C\"") {
  CHECK(made_below_a_wrapped_header().struct_size == sizeof(distrun_op));
}

}  // namespace
}  // namespace distrun::api
