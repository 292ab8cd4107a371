// The C API as a program uses it, with the number of ranks that the launcher starts.
#include <distrun/distrun.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <distrun/distrun.hpp>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "test/support/temporary_file.h"

namespace {

distrun::Session* g_session = nullptr;  // one session for all cases; main opens and closes it

distrun_op make_op(distrun_kind kind, const char* name, float* data, const int64_t* shape) {
  distrun_op op = DISTRUN_INIT(distrun_op);
  op.kind = kind;
  op.name = name;
  op.dtype = DISTRUN_FLOAT32;
  op.reduce = DISTRUN_SUM;
  op.shape = shape;
  op.ndim = 1;
  op.input = op.output = data;
  op.prescale = op.postscale = 1.0;
  op.group = -1;
  return op;
}

distrun_error last_error() {
  distrun_error error = DISTRUN_INIT(distrun_error);
  distrun_last_error(&error);
  return error;
}

// Sends signals all the time, as a profiler does.
class Alarms {
 public:
  Alarms() {
    std::signal(SIGALRM, [](int) {});
    set({.tv_sec = 0, .tv_usec = 20'000});
  }
  ~Alarms() {
    set({});
    std::signal(SIGALRM, SIG_IGN);
  }
  Alarms(const Alarms&) = delete;
  Alarms& operator=(const Alarms&) = delete;

 private:
  static void set(timeval each) {
    const itimerval times{.it_interval = each, .it_value = each};
    ::setitimer(ITIMER_REAL, &times, nullptr);
  }
};

}  // namespace

TEST_CASE("the header and the library are of one version") {
  CHECK(distrun_api_version() == DISTRUN_API_VERSION);
  CHECK(std::string(distrun_version()) == DISTRUN_VERSION_TEXT);
  CHECK(std::string(distrun_code_name(DISTRUN_RANK_LOST)) == "rank lost");
  CHECK(std::string(distrun_code_name(99)) == "unknown code");
}

TEST_CASE("a batch of operations, waited for together") {
  const int size = g_session->size();
  const int64_t shape[1] = {100};
  std::vector<std::vector<float>> tensors(20, std::vector<float>(100, static_cast<float>(g_session->rank())));
  std::vector<std::string> names;
  std::vector<distrun_op> ops;
  for (std::size_t i = 0; i < tensors.size(); ++i) names.push_back("batch." + std::to_string(i));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    ops.push_back(make_op(DISTRUN_ALLREDUCE, names[i].c_str(), tensors[i].data(), shape));
  }
  std::vector<distrun_handle*> handles(ops.size());
  REQUIRE(distrun_enqueue(g_session->get(), ops.data(), ops.size(), handles.data()) == DISTRUN_OK);
  REQUIRE(distrun_wait_all(handles.data(), handles.size(), 30.0, nullptr) == DISTRUN_OK);
  for (std::size_t i = 0; i < handles.size(); ++i) {
    CHECK(distrun_poll(handles[i]) == 1);
    CHECK(tensors[i][99] == static_cast<float>(size * (size - 1)) / 2);
    distrun_release(handles[i]);
  }
}

TEST_CASE("wait_any finds a completed one") {
  const int64_t shape[1] = {1};
  float values[2] = {1, 1};
  const distrun_op ops[2] = {make_op(DISTRUN_ALLREDUCE, "any.a", &values[0], shape),
                             make_op(DISTRUN_ALLREDUCE, "any.b", &values[1], shape)};
  distrun_handle* handles[2] = {};
  REQUIRE(distrun_enqueue(g_session->get(), ops, 2, handles) == DISTRUN_OK);
  uint64_t index = 99;
  CHECK(distrun_wait_any(handles, 2, 30.0, &index) == DISTRUN_OK);
  REQUIRE(index < 2);
  CHECK(distrun_poll(handles[index]) == 1);
  CHECK(distrun_wait(handles[1 - index], 30.0) == DISTRUN_OK);
  for (distrun_handle* handle : handles) distrun_release(handle);
}

TEST_CASE("allgather gives the blocks of all ranks and their sizes") {
  const int rank = g_session->rank();
  const std::vector<float> mine(static_cast<std::size_t>(rank), 1.0F);
  CHECK(g_session->allgather("gather", mine.data(), mine.size()).size() ==
        static_cast<std::size_t>(g_session->size() * (g_session->size() - 1) / 2));
}

TEST_CASE("alltoall, reducescatter and join") {
  const int rank = g_session->rank();
  const int size = g_session->size();
  std::vector<float> mine(static_cast<std::size_t>(2 * size + 1), static_cast<float>(rank));
  std::vector<std::int64_t> splits(static_cast<std::size_t>(size), 1);
  splits.back() = 2;
  const auto received = g_session->alltoall("exchange", mine.data(), mine.size(), splits);
  REQUIRE(received.size() == static_cast<std::size_t>(size * (rank + 1 == size ? 2 : 1)));
  CHECK(received.back() == static_cast<float>(size - 1));
  const auto share = g_session->reducescatter("shares", mine.data(), mine.size(), DISTRUN_SUM);
  CHECK(share.size() == (size == 1 ? 3U : rank == 0 ? 3U : 2U));
  CHECK(share[0] == static_cast<float>(size * (size - 1)) / 2);
  for (int step = 0; step <= rank; ++step) {
    float one = 1;
    g_session->allreduce("step", &one, 1, DISTRUN_SUM);
    CHECK(one == static_cast<float>(size - step));
  }
  CHECK(g_session->join() == size - 1);
}

// Element i of a rank's tensor. It differs between ranks and elements, as far as the type allows.
template <class T>
T value_of(int rank, int i) {
  if constexpr (std::is_same_v<T, bool>) return (2 * rank + i) % 3 == 1;
  return static_cast<T>(7 * rank + i);
}

template <class T>
void check_every_operation(const std::string& name) {
  const int rank = g_session->rank();
  const int size = g_session->size();
  const auto count = static_cast<std::size_t>(size);
  const std::unique_ptr<T[]> data(new T[count]);
  const auto fill = [&] {
    for (int i = 0; i < size; ++i) data[static_cast<std::size_t>(i)] = value_of<T>(rank, i);
  };
  const auto found = [&] { return std::vector<T>(data.get(), data.get() + count); };
  std::vector<T> most;
  std::vector<T> of_root;
  std::vector<T> received;
  std::vector<T> gathered;
  for (int i = 0; i < size; ++i) {
    T value = value_of<T>(0, i);
    for (int other = 1; other < size; ++other) value = std::max(value, value_of<T>(other, i));
    most.push_back(value);
    of_root.push_back(value_of<T>(size - 1, i));
    received.push_back(value_of<T>(i, rank));
    gathered.push_back(value_of<T>(i, 0));
  }
  fill();
  g_session->allreduce(name + "/reduce", data.get(), count, DISTRUN_MAX);
  CHECK(found() == most);
  fill();
  g_session->broadcast(name + "/broadcast", data.get(), count, size - 1);
  CHECK(found() == of_root);
  fill();
  const std::vector<T> share(1, most[static_cast<std::size_t>(rank)]);
  CHECK(g_session->reducescatter(name + "/share", data.get(), count, DISTRUN_MAX) == share);
  CHECK(g_session->alltoall(name + "/exchange", data.get(), count) == received);
  CHECK(g_session->allgather(name + "/gather", data.get(), 1) == gathered);
}

TEST_CASE("the C++ header has every operation for every type") {
  check_every_operation<float>("float");
  check_every_operation<double>("double");
  check_every_operation<std::uint8_t>("uint8");
  check_every_operation<std::int8_t>("int8");
  check_every_operation<std::int16_t>("int16");
  check_every_operation<std::int32_t>("int32");
  check_every_operation<std::int64_t>("int64");
  check_every_operation<long long>("long long");
  check_every_operation<bool>("bool");
}

TEST_CASE("an op of before splits were there is understood") {
  float value = 1;
  const int64_t shape[1] = {1};
  distrun_op op = make_op(DISTRUN_ALLREDUCE, "older", &value, shape);
  op.struct_size = offsetof(distrun_op, splits);
  op.reduce = DISTRUN_SUM;
  distrun_handle* handle = nullptr;
  REQUIRE(distrun_enqueue(g_session->get(), &op, 1, &handle) == DISTRUN_OK);
  CHECK(distrun_wait(handle, 30) == DISTRUN_OK);
  distrun_release(handle);
  CHECK(value == static_cast<float>(g_session->size()));
}

TEST_CASE("a mismatch is every rank's error, and the next operation works") {
  if (g_session->size() == 1) return;
  const int64_t shape[1] = {g_session->rank() == 1 ? 3 : 4};
  float data[4] = {};
  const distrun_op op = make_op(DISTRUN_ALLREDUCE, "odd", data, shape);
  distrun_handle* handle = nullptr;
  REQUIRE(distrun_enqueue(g_session->get(), &op, 1, &handle) == DISTRUN_OK);
  CHECK(distrun_wait(handle, 30.0) == DISTRUN_MISMATCH);
  distrun_error error = DISTRUN_INIT(distrun_error);
  REQUIRE(distrun_get_error(handle, &error) == DISTRUN_OK);
  CHECK(std::string(error.tensor) == "odd");
  CHECK(error.usable == 1);
  REQUIRE(error.num_ranks >= 1);
  if (g_session->size() > 2) CHECK(error.ranks[0] == 1);
  distrun_release(handle);
  g_session->barrier();
}

TEST_CASE("what is wrong is refused at once, with a sentence") {
  const int64_t shape[1] = {1};
  float value = 0;
  distrun_handle* handle = nullptr;
  distrun_op op = make_op(DISTRUN_ALLREDUCE, "bad", &value, shape);
  op.dtype = 77;
  CHECK(distrun_enqueue(g_session->get(), &op, 1, &handle) == DISTRUN_INVALID_ARGUMENT);
  CHECK(std::strstr(last_error().message, "tensor 'bad': unknown dtype 77") != nullptr);
  op = make_op(DISTRUN_ALLREDUCE, "bad", nullptr, shape);
  CHECK(distrun_enqueue(g_session->get(), &op, 1, &handle) == DISTRUN_INVALID_ARGUMENT);
  op = make_op(DISTRUN_ALLREDUCE, nullptr, &value, shape);
  CHECK(distrun_enqueue(g_session->get(), &op, 1, &handle) == DISTRUN_INVALID_ARGUMENT);
  op = make_op(DISTRUN_ALLREDUCE, "bad", &value, shape);
  op.process_set = 12345;
  CHECK(distrun_enqueue(g_session->get(), &op, 1, &handle) != DISTRUN_OK);
  op.struct_size = 3;
  CHECK(distrun_enqueue(g_session->get(), &op, 1, &handle) == DISTRUN_INVALID_ARGUMENT);
  const int64_t negative[1] = {-1};
  op = make_op(DISTRUN_ALLREDUCE, "bad", &value, negative);
  CHECK(distrun_enqueue(g_session->get(), &op, 1, &handle) == DISTRUN_INVALID_ARGUMENT);
  CHECK(distrun_enqueue(nullptr, &op, 1, &handle) == DISTRUN_NOT_INITIALIZED);
  for (const distrun_kind kind : {DISTRUN_ALLREDUCE, DISTRUN_REDUCESCATTER}) {
    op = make_op(kind, "unscaled", &value, shape);
    op.prescale = op.postscale = 0;
    CHECK(distrun_enqueue(g_session->get(), &op, 1, &handle) == DISTRUN_INVALID_ARGUMENT);
    CHECK(std::strstr(last_error().message, "tensor 'unscaled': prescale and postscale are 0") != nullptr);
  }
  op = make_op(DISTRUN_ALLREDUCE, "zero by wish", &value, shape);
  op.postscale = 0;
  value = 1;
  REQUIRE(distrun_enqueue(g_session->get(), &op, 1, &handle) == DISTRUN_OK);
  CHECK(distrun_wait(handle, 30.0) == DISTRUN_OK);
  CHECK(value == 0);
  distrun_release(handle);
  CHECK(distrun_wait(nullptr, 1.0) == DISTRUN_INVALID_ARGUMENT);
}

TEST_CASE("an older caller's smaller struct is filled no further than its end") {
  distrun_world world = {};
  std::memset(&world, 0x5a, sizeof(world));
  world.struct_size = 12;  // room for struct_size, rank and size
  REQUIRE(distrun_get_world(g_session->get(), &world) == DISTRUN_OK);
  CHECK(world.size == g_session->size());
  CHECK(world.local_rank == 0x5a5a5a5a);
}

TEST_CASE("process sets") {
  if (g_session->size() < 2) return;
  const int32_t ranks[2] = {0, 1};
  int32_t set = -1;
  REQUIRE(distrun_process_set_add(g_session->get(), ranks, 2, &set) == DISTRUN_OK);
  uint64_t count = 0;
  int32_t found[8] = {};
  REQUIRE(distrun_process_set_ranks(g_session->get(), set, found, 8, &count) == DISTRUN_OK);
  CHECK(count == 2);
  CHECK(found[1] == 1);
  if (g_session->rank() < 2) {
    const int64_t shape[1] = {1};
    float value = 1;
    distrun_op op = make_op(DISTRUN_ALLREDUCE, "in.set", &value, shape);
    op.process_set = set;
    distrun_handle* handle = nullptr;
    REQUIRE(distrun_enqueue(g_session->get(), &op, 1, &handle) == DISTRUN_OK);
    CHECK(distrun_wait(handle, 30.0) == DISTRUN_OK);
    CHECK(value == 2.0F);
    distrun_release(handle);
  }
  REQUIRE(distrun_process_set_remove(g_session->get(), set) == DISTRUN_OK);
  CHECK(distrun_process_set_ranks(g_session->get(), set, found, 8, &count) != DISTRUN_OK);
}

TEST_CASE("a watch tells one thread what many threads' operations have come to") {
  constexpr int kThreads = 4;
  constexpr int kRounds = 25;
  struct Job {
    float value = 0;
    std::string name;
    distrun_handle* handle = nullptr;
  };
  std::vector<Job> jobs(kThreads * kRounds);
  distrun_watch* watch = nullptr;
  REQUIRE(distrun_watch_open(g_session->get(), &watch) == DISTRUN_OK);

  std::size_t taken = 0;
  int32_t last = DISTRUN_OK;
  std::thread taker([&] {
    void* tag = nullptr;
    while ((last = distrun_watch_next(watch, 60.0, &tag)) == DISTRUN_OK) {
      auto* job = static_cast<Job*>(tag);
      taken += distrun_poll(job->handle) == 1 ? 1U : 0U;
      distrun_release(job->handle);
    }
  });
  {
    std::vector<std::jthread> submitters;
    for (int thread = 0; thread < kThreads; ++thread) {
      submitters.emplace_back([&, thread] {
        const int64_t shape[1] = {1};
        for (int i = 0; i < kRounds; ++i) {
          Job& job = jobs[static_cast<std::size_t>(thread * kRounds + i)];
          job.value = 1;
          job.name = "watch." + std::to_string(thread) + "." + std::to_string(i);
          const distrun_op op = make_op(DISTRUN_ALLREDUCE, job.name.c_str(), &job.value, shape);
          // Every fifth operation is complete, or nearly complete, before it is added.
          if (distrun_enqueue(g_session->get(), &op, 1, &job.handle) != DISTRUN_OK) return;
          if (i % 5 == 0) distrun_wait(job.handle, 60.0);
          if (distrun_watch_add(watch, &job.handle, 1, &job) != DISTRUN_OK) return;
        }
      });
    }
  }
  distrun_watch_end(watch);
  taker.join();
  CHECK(last == DISTRUN_SHUT_DOWN);
  CHECK(taken == jobs.size());
  for (const Job& job : jobs) CHECK(job.value == static_cast<float>(g_session->size()));
  distrun_handle* none = nullptr;
  CHECK(distrun_watch_add(watch, &none, 1, nullptr) == DISTRUN_INVALID_ARGUMENT);
  distrun_watch_close(watch);
}

TEST_CASE("a watch keeps to its time limit, with and without something in flight") {
  distrun_watch* watch = nullptr;
  REQUIRE(distrun_watch_open(g_session->get(), &watch) == DISTRUN_OK);
  void* tag = nullptr;
  CHECK(distrun_watch_next(watch, 0.05, &tag) == DISTRUN_TIMEOUT);
  float value = 1;
  const int64_t shape[1] = {1};
  const distrun_op op = make_op(DISTRUN_ALLREDUCE, "watch.late", &value, shape);
  distrun_handle* handle = nullptr;
  if (g_session->rank() == 0) {
    REQUIRE(distrun_enqueue(g_session->get(), &op, 1, &handle) == DISTRUN_OK);
    REQUIRE(distrun_watch_add(watch, &handle, 1, &value) == DISTRUN_OK);
    if (g_session->size() > 1) {
      uint64_t place = 99;
      CHECK(distrun_watch_next(watch, 0.05, &tag) == DISTRUN_TIMEOUT);
      CHECK((distrun_wait_any(&handle, 1, 0.05, &place) == DISTRUN_TIMEOUT && place == 1));
    }
  }
  std::vector<float> turn(1, 0.0F);
  g_session->allreduce("watch.turn", turn.data(), turn.size());
  if (g_session->rank() != 0) {
    REQUIRE(distrun_enqueue(g_session->get(), &op, 1, &handle) == DISTRUN_OK);
    REQUIRE(distrun_watch_add(watch, &handle, 1, &value) == DISTRUN_OK);
  }
  CHECK(distrun_watch_next(watch, 60.0, &tag) == DISTRUN_OK);
  CHECK(tag == &value);
  CHECK(value == static_cast<float>(g_session->size()));
  distrun_release(handle);
  distrun_watch_close(watch);
}

TEST_CASE("a process set that its members alone make and know of") {
  auto& session = *g_session;
  if (session.size() < 2) return;
  if (session.rank() >= 2) {
    CHECK_THROWS_AS(session.add_process_set({0, 1}, true), distrun::Error);
    return;
  }
  const int set = session.add_process_set({1, 0}, true);
  CHECK(session.process_set_ranks(set) == std::vector<int32_t>{0, 1});
  double value = session.rank();
  session.allreduce("alone", &value, 1, DISTRUN_SUM, set);
  CHECK(value == 1.0);
  const std::vector<double> both{1, 2, 3};
  CHECK(session.reducescatter("alone", both.data(), 3, DISTRUN_SUM, set).size() == (session.rank() == 0 ? 2U : 1U));
  session.barrier(set);
  session.remove_process_set(set);
}

// Adds the set of this rank and `other`, sums ones in it, and removes the set. A set can be removed only once.
int32_t add_and_drop(distrun::Session& session, int32_t other) {
  const int32_t ranks[2] = {session.rank(), other};
  int32_t set = -1;
  if (const int32_t code = distrun_process_set_add_apart(session.get(), ranks, 2, 30.0, &set); code != DISTRUN_OK) {
    return code;
  }
  double value = 1;
  session.allreduce("apart", &value, 1, DISTRUN_SUM, set);
  if (value != 2.0) return DISTRUN_INTERNAL;
  if (const int32_t code = distrun_process_set_drop(session.get(), set); code != DISTRUN_OK) return code;
  return distrun_process_set_drop(session.get(), set) == DISTRUN_INVALID_ARGUMENT ? DISTRUN_OK : DISTRUN_INTERNAL;
}

TEST_CASE("sets made apart: a ring of ranks that each make two at once, in no order") {
  auto& session = *g_session;
  if (session.size() < 3 || session.rank() >= 3) return;
  int32_t codes[2] = {};
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] { codes[i] = add_and_drop(session, (session.rank() + 1 + i) % 3); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(codes[0] == DISTRUN_OK);
  CHECK(codes[1] == DISTRUN_OK);
  const int32_t none[1] = {(session.rank() + 1) % 3};
  int32_t set = -1;
  CHECK(distrun_process_set_add_apart(session.get(), none, 1, 30.0, &set) == DISTRUN_INVALID_ARGUMENT);
}

std::ptrdiff_t shared_windows() {
  std::ifstream maps("/proc/self/maps");
  std::ptrdiff_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("distrun:shm/") != std::string::npos ? 1 : 0;
  return count;
}

std::string why() {
  char text[4096];
  REQUIRE(distrun_query(g_session->get(), "why", text, sizeof(text)) > 0);
  return text;
}

TEST_CASE("sets that come and go leave neither shared memory nor lines of `why`") {
  auto& session = *g_session;
  std::vector<int32_t> all;
  for (int32_t rank = 0; rank < session.size(); ++rank) all.push_back(rank);
  const auto windows = shared_windows();
  const std::string chosen = why();
  for (int i = 0; i < 200; ++i) {
    const int set = session.add_process_set(all);
    float value = 1;
    session.allreduce("comes and goes", &value, 1, DISTRUN_SUM, set);
    CHECK(value == static_cast<float>(session.size()));
    session.remove_process_set(set);
  }
  // The last set is freed when its rank has nothing else to do.
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (why().size() > chosen.size() && std::chrono::steady_clock::now() < late) std::this_thread::yield();
  CHECK(shared_windows() <= windows);
  CHECK(why().size() <= chosen.size());
}

TEST_CASE("all ranks stop at the same call") {
  int32_t stop = 1;
  CHECK(distrun_should_stop(nullptr, 0, &stop) == DISTRUN_NOT_INITIALIZED);
  CHECK(distrun_should_stop(g_session->get(), 0, nullptr) == DISTRUN_INVALID_ARGUMENT);
  CHECK(distrun_should_stop(g_session->get(), 0, &stop) == DISTRUN_OK);
  CHECK(stop == 0);
  const bool last = g_session->rank() == g_session->size() - 1;
  float calls = 0;
  while (!g_session->should_stop()) {
    if (++calls == 3 && last) ::raise(SIGUSR1);  // not SIGTERM, which Catch2 handles
  }
  for (const float others : g_session->allgather("calls", &calls, 1)) CHECK(others == calls);
}

TEST_CASE("a timeline from its start to its stop") {
  const distrun::test::TemporaryFile own;
  std::string path = own.path();  // all ranks use rank 0's path
  g_session->broadcast("timeline.path", reinterpret_cast<std::uint8_t*>(path.data()), path.size(), 0);
  float value = 1;
  g_session->allreduce("untold.before", &value, 1, DISTRUN_SUM);
  REQUIRE(distrun_timeline_start(g_session->get(), path.c_str()) == DISTRUN_OK);
  g_session->allreduce("told", &value, 1, DISTRUN_SUM);
  REQUIRE(distrun_timeline_stop(g_session->get()) == DISTRUN_OK);
  g_session->allreduce("untold.after", &value, 1, DISTRUN_SUM);
  if (g_session->rank() == 0) {
    const std::string text = own.text();
    CHECK(text.find("told") != std::string::npos);
    CHECK(text.find("untold") == std::string::npos);
    CHECK(text.find_last_not_of(" \n") == text.rfind(']'));
  }
  g_session->barrier();
  CHECK(distrun_timeline_start(nullptr, path.c_str()) == DISTRUN_NOT_INITIALIZED);
  CHECK(distrun_timeline_stop(nullptr) == DISTRUN_NOT_INITIALIZED);
}

TEST_CASE("questions have answers") {
  char text[4096];
  CHECK(distrun_query(g_session->get(), "why", text, sizeof(text)) > 0);
  CHECK(std::strstr(text, "cpu: ") != nullptr);
  CHECK(distrun_query(g_session->get(), "why.json", text, sizeof(text)) > 0);
  CHECK(std::strstr(text, R"([{"process_set": 0, "device": "cpu", "backend": ")") == text);
  CHECK(distrun_query(g_session->get(), "settings", text, 4) > 4);
  CHECK(std::strlen(text) == 3);
  CHECK(distrun_query(nullptr, "backends", text, sizeof(text)) > 0);
  CHECK(std::strstr(text, "shm") != nullptr);
  CHECK(distrun_query(nullptr, "backends.json", text, sizeof(text)) > 0);
  CHECK(std::strstr(text, R"({"backend": "self", "usable": true, "reason": "built in"})") != nullptr);
  CHECK(distrun_query(nullptr, nullptr, text, sizeof(text)) == -1);
}

TEST_CASE("a MAC is the same on all ranks, and another one for other data and purposes") {
  using Mac = std::array<std::uint8_t, DISTRUN_MAC_SIZE>;
  const auto mac_of = [](const char* purpose, const std::string& data) {
    Mac made{};
    REQUIRE(distrun_mac(g_session->get(), purpose, data.data(), data.size(), made.data()) == DISTRUN_OK);
    return made;
  };
  const Mac mine = mac_of("test", "data");
  const auto all = g_session->allgather("macs", mine.data(), mine.size());
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == mine[i % mine.size()]);
  CHECK((mine == Mac{}) == (g_session->size() == 1));
  if (g_session->size() > 1) {
    CHECK(mac_of("test", "date") != mine);
    CHECK(mac_of("tests", "data") != mine);
  }
  char mac[DISTRUN_MAC_SIZE];
  CHECK(distrun_mac(nullptr, "test", "data", 4, mac) == DISTRUN_NOT_INITIALIZED);
  CHECK(distrun_mac(g_session->get(), "test", nullptr, 4, mac) == DISTRUN_INVALID_ARGUMENT);
}

TEST_CASE("a forked child is refused, and its parent goes on") {
  float value = 0;
  const int64_t shape[1] = {1};
  const distrun_op op = make_op(DISTRUN_ALLREDUCE, "forked", &value, shape);
  distrun_handle* in_flight = nullptr;
  const bool first = g_session->rank() == 0;
  if (first) REQUIRE(distrun_enqueue(g_session->get(), &op, 1, &in_flight) == DISTRUN_OK);
  const pid_t child = fork();
  if (child == 0) {
    distrun_handle* handle = nullptr;
    const int32_t code = distrun_enqueue(g_session->get(), &op, 1, &handle);
    if (code != DISTRUN_NOT_INITIALIZED || std::strstr(last_error().message, "method spawn") == nullptr) _exit(1);
    const bool ends = !first || (distrun_poll(in_flight) == 1 && distrun_wait(in_flight, -1.0) != DISTRUN_INTERRUPTED);
    _exit(ends ? 7 : 2);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 7);
  if (first && g_session->size() > 1) CHECK(distrun_poll(in_flight) == 0);
  g_session->barrier();
  if (!first) REQUIRE(distrun_enqueue(g_session->get(), &op, 1, &in_flight) == DISTRUN_OK);
  CHECK(distrun_wait(in_flight, -1.0) == DISTRUN_OK);
  distrun_release(in_flight);
}

TEST_CASE("40 process sets at once") {
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(g_session->size()));
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<std::int32_t>(i);
  std::vector<int> sets(40);
  for (int& set : sets) set = g_session->add_process_set(ranks, true);
  for (const int set : sets) {
    float value = 1;
    g_session->allreduce("in.many.sets", &value, 1, DISTRUN_SUM, set);
    CHECK(value == static_cast<float>(g_session->size()));
  }
  for (const int set : sets) g_session->remove_process_set(set);
}

TEST_CASE("signals do not prolong a wait") {
  if (g_session->size() == 1) return;
  const Alarms alarms;
  float value = 1;
  if (g_session->rank() == 0) {
    auto operation = g_session->allreduce_async("alarmed", &value, 1, DISTRUN_SUM);
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(operation.wait(0.3), distrun::Error);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
    CHECK_FALSE(operation.done());
    g_session->barrier();
    operation.wait();
  } else {
    g_session->barrier();
    g_session->allreduce("alarmed", &value, 1, DISTRUN_SUM);
  }
  CHECK(value == static_cast<float>(g_session->size()));
}

int main(int argc, char** argv) {
  distrun::Session session;
  g_session = &session;
  const int failures = Catch::Session().run(argc, argv);
  const Alarms alarms;  // signals must not interrupt the other ranks, which wait while they leave
  if (session.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  // Two threads call shutdown() at once, and this one calls it again. Every call gives the same result.
  std::thread other([&] { session.shutdown(); });
  session.shutdown();
  other.join();
  session.shutdown();
  return failures;
}
