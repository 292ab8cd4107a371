// The session of the process, as the kernels of the front ends see it, over a fake of the C API.
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "bindings/bridge/core.h"
#include "bindings/bridge/failures.h"

using distrun::bridge::Attachment;
using distrun::bridge::core;
using distrun::bridge::PendingOperation;

namespace {

// One watch at a time. next() returns codes before tags.
struct FakeWatch {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::int32_t> codes;
  std::deque<void*> tags;
  bool broken = false;  // next() always fails
  bool ended = false;
  bool closed = false;
  std::string thread_name;
  bool takes_faults = false;
  bool takes_others = false;
};
FakeWatch fake;

bool thread_takes(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 0;
}

std::int32_t open_watch(distrun_session*, distrun_watch** watch) {
  const std::lock_guard lock(fake.mutex);
  fake.codes.clear();
  fake.tags.clear();
  fake.broken = fake.ended = fake.closed = false;
  *watch = reinterpret_cast<distrun_watch*>(&fake);
  return DISTRUN_OK;
}

std::int32_t add_to_watch(distrun_watch*, distrun_handle* const*, std::uint64_t, void* tag) {
  const std::lock_guard lock(fake.mutex);
  if (fake.ended) return DISTRUN_SHUT_DOWN;
  fake.tags.push_back(tag);
  fake.changed.notify_all();
  return DISTRUN_OK;
}

std::int32_t next_of_watch(distrun_watch*, double, void** tag) {
  std::unique_lock lock(fake.mutex);
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  fake.thread_name = name;
  fake.takes_faults = thread_takes(SIGSEGV);
  fake.takes_others = thread_takes(SIGUSR2);
  fake.changed.notify_all();
  while (fake.codes.empty() && fake.tags.empty() && !fake.ended && !fake.broken) fake.changed.wait(lock);
  if (fake.broken) return DISTRUN_INTERNAL;
  if (!fake.codes.empty()) {
    const std::int32_t code = fake.codes.front();
    fake.codes.pop_front();
    return code;
  }
  if (fake.tags.empty()) return DISTRUN_SHUT_DOWN;
  *tag = fake.tags.front();
  fake.tags.pop_front();
  return DISTRUN_OK;
}

void end_watch(distrun_watch*) {
  const std::lock_guard lock(fake.mutex);
  fake.ended = true;
  fake.changed.notify_all();
}

void close_watch(distrun_watch*) {
  const std::lock_guard lock(fake.mutex);
  fake.closed = true;
}

void use_fakes() {
  core.distrun_watch_open = open_watch;
  core.distrun_watch_add = add_to_watch;
  core.distrun_watch_next = next_of_watch;
  core.distrun_watch_end = end_watch;
  core.distrun_watch_close = close_watch;
  core.distrun_poll = [](distrun_handle*) -> std::int32_t { return 1; };
}

bool is_closed() {
  const std::lock_guard lock(fake.mutex);
  return fake.closed;
}

int session_memory = 0;
distrun_session* const session = reinterpret_cast<distrun_session*>(&session_memory);

class CountedOperation final : public PendingOperation {
 public:
  explicit CountedOperation(std::atomic<int>& completed) : completed_(completed) {}
  void complete() noexcept override {
    ++completed_;
    completed_.notify_all();
    delete this;
  }

 private:
  std::atomic<int>& completed_;
};

}  // namespace

TEST_CASE("what is handed to the watch is completed by its thread before the session may be freed") {
  use_fakes();
  Attachment attachment;
  REQUIRE(attachment.attach(session).empty());
  std::atomic<int> completed{0};
  attachment.lease()->watch({}, new CountedOperation(completed));
  CHECK(attachment.detach());
  CHECK(completed == 1);
  CHECK(is_closed());
  CHECK(fake.thread_name == "distrun-watch");
  CHECK(fake.takes_faults);
  CHECK_FALSE(fake.takes_others);
  CHECK_FALSE(attachment.lease());
  CHECK(attachment.detach());
}

TEST_CASE("a detach inside this thread's own call returns, and leaves the session to that call") {
  use_fakes();
  Attachment attachment;
  REQUIRE(attachment.attach(session).empty());
  std::atomic<int> completed{0};
  {
    const auto lease = attachment.lease();
    REQUIRE(lease);
    const auto started = std::chrono::steady_clock::now();
    CHECK_FALSE(attachment.detach());
    CHECK(std::chrono::steady_clock::now() - started < std::chrono::seconds(5));
    CHECK_FALSE(is_closed());
    CHECK_FALSE(attachment.lease());
    // An operation also continues like this after the handler that shut down has returned.
    CHECK(lease->session() == session);
    lease->watch({}, new CountedOperation(completed));
    CHECK(completed == 1);
  }
  REQUIRE(attachment.attach(session).empty());
  CHECK(attachment.detach());
}

TEST_CASE("a detach waits for the calls of other threads") {
  use_fakes();
  Attachment attachment;
  REQUIRE(attachment.attach(session).empty());
  std::atomic<bool> inside{false};
  std::atomic<int> completed{0};
  std::thread other([&] {
    const auto lease = attachment.lease();
    inside = true;
    inside.notify_all();
    while (attachment.lease()) std::this_thread::yield();  // until the other thread detaches
    lease->watch({}, new CountedOperation(completed));
  });
  inside.wait(false);
  CHECK(attachment.detach());
  CHECK(completed == 1);
  other.join();
}

TEST_CASE("a watch that fails once loses nothing, and one that fails on and on takes no core") {
  use_fakes();
  Attachment attachment;
  REQUIRE(attachment.attach(session).empty());
  std::atomic<int> completed{0};
  {
    const std::lock_guard lock(fake.mutex);
    for (int i = 0; i < 4; ++i) fake.codes.push_back(i % 2 == 0 ? DISTRUN_OUT_OF_MEMORY : DISTRUN_INTERNAL);
  }
  const auto started = std::chrono::steady_clock::now();
  attachment.lease()->watch({}, new CountedOperation(completed));
  completed.wait(0);
  CHECK(std::chrono::steady_clock::now() - started >= std::chrono::milliseconds(20));
  CHECK(attachment.detach());
  CHECK(completed == 1);
}

TEST_CASE("of a step of many operations that all fail the first error is found too, and one text is kept once") {
  const auto fail = [](const std::string& message, std::int32_t code) {
    auto error = DISTRUN_INIT(distrun_error);
    error.code = code;
    error.message = message.c_str();
    error.tensor = error.host = error.cause = "";
    distrun::bridge::remember_failure(error);
  };
  const auto code_of = [](const std::string& text) {
    auto found = DISTRUN_INIT(distrun_error);
    return distrun::bridge::find_failure(text, found) ? found.code : 0;
  };
  for (int i = 0; i < 500; ++i) fail("tensor " + std::to_string(i) + " of this test differs", DISTRUN_MISMATCH);
  for (int i = 0; i < 2000; ++i) fail("rank 1 of this test is lost", DISTRUN_RANK_LOST);
  CHECK(code_of("step failed: tensor 0 of this test differs [Op:x]") == DISTRUN_MISMATCH);
  CHECK(code_of("rank 1 of this test is lost") == DISTRUN_RANK_LOST);
  CHECK(code_of("something else") == 0);
}

TEST_CASE("a watch that fails for good does not keep the session from ending") {
  use_fakes();
  Attachment attachment;
  REQUIRE(attachment.attach(session).empty());
  {
    const std::lock_guard lock(fake.mutex);
    fake.broken = true;
    fake.changed.notify_all();
  }
  CHECK(attachment.detach());
  CHECK(is_closed());
}

TEST_CASE("where no thread can be started, the front end is told why and nothing is attached") {
  use_fakes();
  Attachment attachment;
  pthread_attr_t before;
  REQUIRE(::pthread_getattr_default_np(&before) == 0);
  pthread_attr_t vast;
  REQUIRE(::pthread_attr_init(&vast) == 0);
  REQUIRE(::pthread_attr_setstacksize(&vast, std::size_t{1} << 50) == 0);  // more than an address space has
  REQUIRE(::pthread_setattr_default_np(&vast) == 0);
  const std::string text = attachment.attach(session);
  REQUIRE(::pthread_setattr_default_np(&before) == 0);
  CHECK(text.find("cannot start the thread distrun-watch") != std::string::npos);
  CHECK(text.find("ulimit -u") != std::string::npos);
  CHECK(is_closed());
  CHECK_FALSE(attachment.lease());
}
