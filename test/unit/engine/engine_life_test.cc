// The engine's effect on its process: threads, descriptors, wake-ups, signals, silent ranks.
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "runtime/engine/protocol/tensor_key.h"
#include "test/support/engine_ranks.h"
#include "test/support/temporary_file.h"
#include "test/support/text.h"

namespace distrun::engine {
namespace {

using test::EngineJob;
using test::slurp;

using test::has;

Status allreduce(Engine& engine, const std::string& name, int set = 0) {
  std::vector<float> memory(4, 1);
  const Submission one{.name = name, .shape = {4}, .process_set = set, .input = memory.data(), .output = memory.data()};
  const auto handles = engine.submit(std::span(&one, 1));
  if (!handles.ok()) return handles.status();
  EXPECT_OK(engine.wait_all(*handles, deadline_after(40)));
  return handles->front()->status();
}

int entries_of(const char* folder) {
  int count = 0;
  DIR* directory = ::opendir(folder);
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

// The engine threads of all engines in this process.
struct EngineThreads {
  long sleeps = 0;     // how often they have gone to sleep
  bool asleep = true;  // all threads are asleep, and none waits for a processor
  bool operator==(const EngineThreads&) const = default;
};

EngineThreads engine_threads() {
  EngineThreads threads;
  DIR* tasks = ::opendir("/proc/self/task");
  while (const dirent* task = ::readdir(tasks)) {
    const std::string folder = std::string("/proc/self/task/") + task->d_name;
    if (!has(slurp(folder + "/comm"), "distrun-engine")) continue;
    const std::string status = slurp(folder + "/status");
    const std::size_t at = status.find("voluntary_ctxt_switches:");
    if (at != std::string::npos) threads.sleeps += std::stol(status.substr(at + 24));
    threads.asleep = threads.asleep && has(status, "State:\tS");
  }
  ::closedir(tasks);
  return threads;
}

TEST_CASE("100 engines after each other leave no thread and no descriptor behind") {
  EngineJob job({.ranks = 1});
  {
    job.run([](int, Engine& engine) { EXPECT_OK(allreduce(engine, "first")); });
  }
  const int descriptors = entries_of("/proc/self/fd");
  const int threads = entries_of("/proc/self/task");  // a sanitizer may have a thread too
  for (int i = 0; i < 100; ++i) {
    EngineJob one({.ranks = 2});
    one.run([](int, Engine& engine) { EXPECT_OK(allreduce(engine, "x")); });
  }
  CHECK(entries_of("/proc/self/fd") == descriptors);
  // The kernel may still list a thread for a short time after it was joined.
  const TimePoint deadline = deadline_after(10);
  while (entries_of("/proc/self/task") > threads && Clock::now() < deadline) std::this_thread::yield();
  CHECK(entries_of("/proc/self/task") <= threads);
}

TEST_CASE("an idle job sleeps: no wake-ups at all") {
  EngineJob job({.ranks = 3});
  std::atomic<int> ready{0};
  std::atomic<bool> measured{false};
  std::atomic<long> woken{-1};
  job.run([&](int rank, Engine& engine) {
    for (int i = 0; i < 10; ++i) EXPECT_OK(allreduce(engine, "x"));
    ready.fetch_add(1);
    if (rank != 0) {
      while (!measured.load()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    while (ready.load() < 3) std::this_thread::yield();
    // The engines' threads take over one tick after the last use. On a loaded machine this takes longer.
    EngineThreads before = engine_threads();
    for (int quiet = 0; quiet < 10;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const EngineThreads now = engine_threads();
      quiet = now == before && now.asleep ? quiet + 1 : 0;
      before = now;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    woken.store(engine_threads().sleeps - before.sleeps);
    measured.store(true);
  });
  CHECK(woken.load() == 0);
}

std::atomic<int> signals_seen{0};

TEST_CASE("a signal ends a blocked wait with kInterrupted, and the wait can be resumed") {
  struct sigaction action = {};
  action.sa_handler = [](int) { signals_seen.fetch_add(1); };
  struct sigaction before = {};
  ::sigaction(SIGUSR1, &action, &before);
  for (const bool drives : {true, false}) {
    EngineJob job({.ranks = 2});
    std::atomic<bool> interrupted{false};
    job.run([&](int rank, Engine& engine) {
      if (rank == 1) {
        while (!interrupted.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_OK(allreduce(engine, "x"));
        return;
      }
      std::vector<float> memory(4, 1);
      const Submission one{.name = "x", .shape = {4}, .input = memory.data(), .output = memory.data()};
      const auto handles = engine.submit(std::span(&one, 1));
      EXPECT_OK(handles);
      // If another waiter holds the token, this one sleeps and does not drive the engine.
      std::jthread other;
      if (!drives) other = std::jthread([&] { (void)engine.wait_all(*handles, deadline_after(40)); });
      const pthread_t self = ::pthread_self();
      const std::jthread sender([&] {
        sigset_t none;
        sigemptyset(&none);
        while (!interrupted.load()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          ::pthread_kill(self, SIGUSR1);
        }
      });
      if (!drives) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_EQ(engine.wait_all(*handles, deadline_after(40)).code(), Errc::kInterrupted);
      interrupted.store(true);
      Status status;
      do {
        status = engine.wait_all(*handles, deadline_after(40));
      } while (status.code() == Errc::kInterrupted);
      EXPECT_OK(status);
      EXPECT_OK(handles->front()->status());
    });
  }
  CHECK(signals_seen.load() > 0);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("a wait ends at its deadline though what it waits for moves all the time") {
  std::atomic<int> timed_out{0};
  EngineJob job({.ranks = 2, .backend = {.holds = [&](int) { return timed_out.load() < 2; }, .moves = true}});
  job.run([&](int, Engine& engine) {
    std::vector<float> memory(4, 1);
    const HandlePtr handle = test::submit(engine, test::allreduce("x", memory));
    EXPECT_EQ(engine.wait_all(std::span(&handle, 1), deadline_after(0.05)).code(), Errc::kTimeout);
    ++timed_out;
    EXPECT_OK(engine.wait_all(std::span(&handle, 1), deadline_after(30)));
  });
}

TEST_CASE("a rank that does not answer is named: a member by the leader, the leader by the members") {
  for (const int silent : {0, 1}) {
    EngineJob job({.ranks = 2,
                   .settings = {.stall_warning_time = 0.05, .stall_shutdown_time = 0.5},
                   .background_thread = false,  // so a rank that does not wait acts like a stopped one
                   .shut_down = false});
    std::atomic<bool> over{false};
    job.run([&](int rank, Engine& engine) {
      if (rank == silent) {
        while (!over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      const Status status = allreduce(engine, "x");
      over.store(true);
      EXPECT_EQ(status.code(), Errc::kTimeout);
      EXPECT_EQ(status.info().ranks.at(0), silent);
      EXPECT_EQ(status.info().host, EngineJob::host_of(silent));
    });
    const auto warnings = job.warnings();
    const std::string name = "rank " + std::to_string(silent) + " (node0)";
    CHECK(std::any_of(warnings.begin(), warnings.end(), [&](const std::string& line) { return has(line, name); }));
  }
}

TEST_CASE("whichever rank is silent, in whatever the others do, all of them name it") {
  enum class Phase { kAgreeing, kRunning, kLeaving };
  for (const Phase phase : {Phase::kAgreeing, Phase::kRunning, Phase::kLeaving}) {
    for (const int silent : {0, 1, 2}) {
      EngineJob job({.ranks = 3,
                     .settings = {.stall_warning_time = 0, .stall_shutdown_time = 0.3},
                     .background_thread = false,  // so a rank that does not wait acts like a stopped one
                     .backend = {.hangs = phase == Phase::kRunning ? silent : -1},
                     .shut_down = false});
      std::atomic<int> over{0};
      job.run([&](int rank, Engine& engine) {
        std::vector<float> memory(4, 1);
        const Submission one{.name = "x", .shape = {4}, .input = memory.data(), .output = memory.data()};
        std::vector<HandlePtr> handles;
        const bool takes_part = phase == Phase::kRunning || (phase == Phase::kAgreeing && rank != silent);
        if (takes_part) handles = *engine.submit(std::span(&one, 1));
        if (rank == silent) {
          // Long enough to agree on the operations in flight, and no longer.
          if (takes_part) (void)engine.wait_all(handles, deadline_after(0.15));
          while (over.load() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return;
        }
        const Status waited =
            takes_part ? engine.wait_all(handles, deadline_after(40)) : engine.shutdown(deadline_after(40));
        const Status status = takes_part ? handles.front()->status() : waited;
        over.fetch_add(1);
        EXPECT_EQ(status.code(), Errc::kTimeout);
        EXPECT_EQ(status.info().ranks, std::vector<int>{silent});
        EXPECT_EQ(status.info().host, EngineJob::host_of(silent));
      });
      const int teller = silent == 0 ? 1 : 0;
      CHECK(job.channel(teller).stalled() == std::vector<int>{silent});
    }
  }
}

TEST_CASE("what hangs is told by rank 0 for all that are in it, and by the others where it is not") {
  std::atomic<bool> held{true};
  EngineJob job(
      {.ranks = 4, .settings = {.stall_warning_time = 1}, .backend = {.holds = [&](int) { return held.load(); }}});
  const auto count_warnings = [&](const std::string& text, const std::string& end = "") {
    const auto warnings = job.warnings();
    return std::count_if(warnings.begin(), warnings.end(),
                         [&](const std::string& line) { return has(line, text) && has(line, end); });
  };
  job.run([&](int rank, Engine& engine) {
    const auto with_leader = engine.add_process_set({0, 1}, false, deadline_after(40));
    const auto without = engine.add_process_set({2, 3}, false, deadline_after(40));
    std::vector<float> memory(4, 1);
    const Submission one{.name = rank < 2 ? "with" : "without",
                         .shape = {4},
                         .process_set = rank < 2 ? *with_leader : *without,
                         .input = memory.data(),
                         .output = memory.data()};
    const HandlePtr handle = test::submit(engine, one);
    // When a second line is printed, the other ranks have asked as well.
    const auto all_warned = [&] {
      return count_warnings("'with' has been running") >= 2 && count_warnings("'without' has been") >= 2;
    };
    const TimePoint end = deadline_after(40);
    while (!all_warned() && Clock::now() < end) (void)engine.wait_all(std::span(&handle, 1), deadline_after(0.05));
    EXPECT(all_warned());
    held.store(false);
    job.wait_set(rank).wake();
    EXPECT_OK(engine.wait_all(std::span(&handle, 1), deadline_after(40)));
    EXPECT_OK(handle->status());
  });
  CHECK(count_warnings("'with' has been running", "rank 0 answers") == 0);
}

TEST_CASE("where a peer goes while rank 0 is silent, both are named: one may have gone because of the other") {
  EngineJob job({.ranks = 3,
                 .background_thread = false,  // so a rank that does not wait acts like a stopped one
                 .backend = {.hangs = 1},
                 .shut_down = false});
  std::atomic<bool> silent{false};
  std::atomic<bool> over{false};
  job.run([&](int rank, Engine& engine) {
    std::vector<float> memory(4, 1);
    const Submission one{.name = "x", .shape = {4}, .input = memory.data(), .output = memory.data()};
    const auto handles = *engine.submit(std::span(&one, 1));
    if (rank != 2) {
      // Long enough to agree on the operation, and no longer.
      (void)engine.wait_all(handles, deadline_after(0.15));
      if (rank == 0) silent.store(true);
      while (!silent.load()) std::this_thread::yield();
      if (rank == 1) job.kill(1);
      while (!over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    (void)engine.wait_all(handles, deadline_after(20));
    over.store(true);
    const Status& status = handles.front()->status();
    EXPECT_EQ(status.code(), Errc::kTimeout);
    EXPECT_EQ(status.info().ranks, (std::vector<int>{0, 1}));
  });
}

TEST_CASE("a join past the limit is not ended by a rank that does not answer for a while") {
  const auto data_ends = deadline_after(4);  // rank 2 has data until then, and is asked after 2.5 s
  EngineJob job({.ranks = 3,
                 .settings = {.stall_warning_time = 0, .stall_shutdown_time = 2.5},
                 .background_thread = false});  // so a rank that does not wait acts like a stopped one
  job.run([&](int rank, Engine& engine) {
    if (rank == 2) std::this_thread::sleep_until(data_ends);
    const Submission one{.kind = OpKind::kJoin, .name = std::string(kJoinName)};
    const auto handles = engine.submit(std::span(&one, 1));
    EXPECT_OK(handles.status());
    EXPECT_OK(engine.wait_all(*handles, deadline_after(20)));
    EXPECT_OK(handles->front()->status());
  });
}

TEST_CASE("who stays silent while another rank has joined ends the job, also if rank 0 waits for nobody") {
  EngineJob job({.ranks = 3,
                 .settings = {.stall_warning_time = 0, .stall_shutdown_time = 0.3},
                 .background_thread = false,  // so a rank that does not wait acts like a stopped one
                 .shut_down = false});
  std::atomic<bool> over{false};
  job.run([&](int rank, Engine& engine) {
    const auto alone = engine.add_process_set({0}, false, deadline_after(40));
    const auto both = engine.add_process_set({1, 2}, false, deadline_after(40));
    EXPECT_OK(alone.status());
    EXPECT_OK(both.status());
    if (rank == 0) {
      Status ended;
      while (ended.ok() && !over.load()) ended = allreduce(engine, "busy", *alone);
      EXPECT_EQ(ended.code(), Errc::kTimeout);
      if (!ended.ok()) EXPECT_EQ(ended.info().ranks, std::vector<int>{2});
    } else if (rank == 1) {
      const Submission one{.kind = OpKind::kJoin, .name = std::string(kJoinName), .process_set = *both};
      const auto handles = engine.submit(std::span(&one, 1));
      const Status waited = engine.wait_all(*handles, deadline_after(20));
      over.store(true);
      EXPECT_OK(waited);
      EXPECT_EQ(handles->front()->status().code(), Errc::kTimeout);
    } else {
      while (!over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
}

TEST_CASE("a rank that is silent while the others make a call with it ends the job with its name") {
  for (const int silent : {0, 1}) {
    EngineJob job({.ranks = 3,
                   .settings = {.stall_warning_time = 0, .stall_shutdown_time = 0.3},
                   .background_thread = false,  // so a rank that does not wait acts like a stopped one
                   .shut_down = false});
    std::atomic<int> over{0};
    job.run([&](int rank, Engine& engine) {
      if (rank == silent) {
        while (over.load() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      const auto made = engine.add_process_set({0, 1}, false, deadline_after(40));
      over.fetch_add(1);
      EXPECT_EQ(made.status().code(), Errc::kTimeout);
      if (!made.ok()) EXPECT_EQ(made.status().info().ranks, std::vector<int>{silent});
    });
  }
}

TEST_CASE("a rank that is silent while the others agree where to stop ends the job with its name") {
  for (const int silent : {0, 1}) {
    EngineJob job({.ranks = 3,
                   .settings = {.stall_warning_time = 0, .stall_shutdown_time = 0.3},
                   .background_thread = false,  // so a rank that does not wait acts like a stopped one
                   .shut_down = false});
    std::atomic<int> over{0};
    job.run([&](int rank, Engine& engine) {
      if (rank == silent) {
        while (over.load() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      const auto stop = engine.should_stop(true);
      over.fetch_add(1);
      EXPECT_EQ(stop.status().code(), Errc::kTimeout);
      if (!stop.ok()) EXPECT_EQ(stop.status().info().ranks, std::vector<int>{silent});
    });
  }
}

}  // namespace
}  // namespace distrun::engine
