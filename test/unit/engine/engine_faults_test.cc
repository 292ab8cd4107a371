// Faults in whole engines, with ranks as threads: mismatches, deaths, leaving, aborts, stalls, shutdown.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <thread>

#include "test/support/engine_ranks.h"
#include "test/support/text.h"

namespace distrun::engine {
namespace {

using test::EngineJob;
using test::submit;

struct Floats {
  explicit Floats(std::size_t count, float value = 1) : memory(count, value) {}
  Submission named(const std::string& name) {
    return {.name = name,
            .shape = {static_cast<std::int64_t>(memory.size())},
            .input = memory.data(),
            .output = memory.data()};
  }
  std::vector<float> memory;
};

const Status& wait(Engine& engine, const HandlePtr& handle) {
  EXPECT_OK(engine.wait_all(std::span(&handle, 1), deadline_after(40)));
  return handle->status();
}

using test::has;

void expect_job_over(Engine& engine, Errc code) {
  Floats more(1);
  const Submission one = more.named("after the end");
  const auto refused = engine.submit(std::span(&one, 1));
  EXPECT(!refused.ok());
  EXPECT_EQ(refused.status().code(), code);
  EXPECT(!refused.status().info().usable);
}

TEST_CASE("mismatches are an error on every rank, and the job goes on") {
  for (const std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{100}}) {
    EngineJob job({.ranks = 3, .settings = {.cache_capacity = capacity}});
    job.run([&](int rank, Engine& engine) {
      for (int step = 0; step < 4; ++step) {
        Floats data(4);
        Submission one = data.named("x");
        if (rank == 1 && step % 2 == 1) one.dtype = DType::kI32;
        const HandlePtr handle = submit(engine, one);
        const Status& status = wait(engine, handle);
        EXPECT_EQ(status.ok(), step % 2 == 0);
        if (status.ok()) continue;
        EXPECT_EQ(status.code(), Errc::kMismatch);
        EXPECT(status.info().usable);
        EXPECT_EQ(status.info().tensor, "x");
        EXPECT_EQ(status.info().ranks.at(0), 1);
        EXPECT(has(status.message(), "int32"));
      }
    });
  }
}

TEST_CASE("one bad tensor among many good ones fails alone") {
  EngineJob job({.ranks = 4});
  job.run([&](int rank, Engine& engine) {
    std::vector<Floats> data(30, Floats(8));
    std::vector<HandlePtr> handles;
    for (std::size_t i = 0; i < data.size(); ++i) {
      Submission one = data[i].named(std::to_string(i));
      if (i == 13 && rank == 2) one.shape = {2, 4};
      handles.push_back(submit(engine, one));
    }
    EXPECT_OK(engine.wait_all(handles, deadline_after(40)));
    for (std::size_t i = 0; i < data.size(); ++i) EXPECT_EQ(handles[i]->status().ok(), i != 13);
  });
}

TEST_CASE("what the backend cannot do is an error of the tensor, not of the job") {
  EngineJob job({.ranks = 2});
  job.run([&](int, Engine& engine) {
    Floats data(4);
    Submission one = data.named("x");
    one.dtype = DType::kI64;
    one.shape = {2};
    EXPECT_EQ(wait(engine, submit(engine, one)).code(), Errc::kUnsupported);
    one = data.named("on cuda");
    one.device.type = DeviceType::kCuda;
    const HandlePtr handle = submit(engine, one);
    EXPECT_EQ(wait(engine, handle).code(), Errc::kUnsupported);
    EXPECT(has(handle->status().message(), "no backend for device cuda"));
    EXPECT_OK(wait(engine, submit(engine, data.named("fine"))));
  });
}

TEST_CASE("a rank whose backend has no memory for an operation ends the job on all: nobody waits for it") {
  EngineJob job({.ranks = 3, .backend = {.starves = 1}, .shut_down = false});
  job.run([&](int, Engine& engine) {
    Floats data(4);
    const Status status = wait(engine, submit(engine, data.named("x")));
    EXPECT_EQ(status.code(), Errc::kOutOfMemory);
    EXPECT_EQ(status.info().ranks, std::vector<int>{1});
    EXPECT(has(status.message(), "rank 1"));
    EXPECT(has(status.message(), "Run fewer ranks on its host"));
    const auto said = job.channel(1).failures();
    EXPECT(said.size() == 1 && said.front().cause.starts_with("out of memory: "));
    expect_job_over(engine, Errc::kOutOfMemory);
  });
}

TEST_CASE("a name in flight is refused on this rank only") {
  EngineJob job({.ranks = 2});
  std::atomic<bool> refused{false};
  job.run([&](int rank, Engine& engine) {
    Floats data(4);
    const Submission one = data.named("x");
    const auto gate = [&] {
      while (!refused.load()) std::this_thread::yield();
    };
    if (rank == 1) gate();
    const HandlePtr first = submit(engine, one);
    if (rank == 0) {
      const auto again = engine.submit(std::span(&one, 1));
      EXPECT_EQ(again.status().code(), Errc::kDuplicateName);
      refused.store(true);
    }
    EXPECT_OK(wait(engine, first));
    EXPECT_OK(wait(engine, submit(engine, one)));
  });
}

TEST_CASE("a death at any moment: the others get its rank, host and cause; nothing waits") {
  for (unsigned seed = 1; seed <= 24; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 4);
    // Outlives the engines. The victim's engine is not really killed and may still run operations on this memory.
    std::vector<std::vector<Floats>> memory(static_cast<std::size_t>(ranks));
    EngineJob job({.ranks = ranks, .shut_down = false});
    const int victim = static_cast<int>(seed) % ranks;
    const bool launcher_reports = seed % 3 != 0;  // the launcher reports the death
    job.run([&](int rank, Engine& engine) {
      std::mt19937 random(seed);
      const int fatal = static_cast<int>(random() % 20);
      for (int step = 0;; ++step) {
        std::vector<Floats>& data = memory[static_cast<std::size_t>(rank)];
        data.assign(5, Floats(8));
        std::vector<HandlePtr> handles;
        if (rank == victim && step == fatal) {
          if (random() % 2 == 0) handles.push_back(submit(engine, data[0].named("0")));
          job.kill(rank);
          if (launcher_reports) {
            job.tell_all({.rank = victim, .signal = 9, .host = "nodeX", .cause = "killed by signal 9 (SIGKILL)"});
          }
          return;
        }
        std::vector<Submission> all;
        for (std::size_t i = 0; i < data.size(); ++i) all.push_back(data[i].named(std::to_string(i)));
        auto submitted = engine.submit(all);
        if (submitted.ok()) {
          EXPECT_OK(engine.wait_all(*submitted, deadline_after(40)));
          const auto bad = std::find_if(submitted->begin(), submitted->end(),
                                        [](const HandlePtr& handle) { return !handle->status().ok(); });
          if (bad == submitted->end()) continue;
          submitted = (*bad)->status();
        }
        const ErrorInfo& info = submitted.status().info();
        EXPECT_EQ(info.code, Errc::kRankLost);
        EXPECT_EQ(info.ranks.at(0), victim);
        EXPECT(!info.usable);
        // If a rank gets the loss from a peer that saw only the end of a connection, it knows no more than that peer.
        if (launcher_reports && info.host == "nodeX") EXPECT_EQ(info.cause, "killed by signal 9 (SIGKILL)");
        if (!launcher_reports) EXPECT_EQ(info.host, EngineJob::host_of(victim));
        expect_job_over(engine, Errc::kRankLost);
        return;
      }
    });
  }
}

TEST_CASE("the launcher's word that a rank failed ends the job, also when nothing is in flight") {
  EngineJob job({.ranks = 3, .shut_down = false});
  job.run([&](int rank, Engine& engine) {
    if (rank == 2) job.tell_all({.rank = 2, .exit_code = 3, .host = "h", .cause = "exited with code 3"});
    const TimePoint deadline = deadline_after(40);
    Floats data(1);
    for (;; std::this_thread::yield()) {
      const Submission one = data.named("x" + std::to_string(rank));
      auto handles = engine.submit(std::span(&one, 1));
      if (handles.ok()) EXPECT_OK(engine.wait_all(*handles, deadline));
      const Status status = handles.ok() ? handles->front()->status() : handles.status();
      EXPECT_EQ(status.code(), Errc::kRankLost);
      EXPECT_EQ(status.info().cause, "exited with code 3");
      return;
    }
  });
}

TEST_CASE("the launcher's own end is an error that says so") {
  EngineJob job({.ranks = 1, .shut_down = false});
  job.run([&](int, Engine& engine) {
    job.channel(0).hang_up();
    const TimePoint deadline = deadline_after(40);
    Floats data(1);
    for (Status status; status.ok(); std::this_thread::yield()) {
      EXPECT(Clock::now() < deadline);
      const Submission one = data.named("x");
      auto handles = engine.submit(std::span(&one, 1));
      if (handles.ok()) EXPECT_OK(engine.wait_all(*handles, deadline));
      status = handles.ok() ? handles->front()->status() : handles.status();
      if (!status.ok()) EXPECT_EQ(status.info().cause, "its connection to the launcher ended");
    }
  });
}

TEST_CASE("abort on one rank reaches all, with its cause, and every handle ends") {
  EngineJob job({.ranks = 4, .shut_down = false});
  std::atomic<int> submitted{0};
  job.run([&](int rank, Engine& engine) {
    Floats data(4);
    const HandlePtr handle = submit(engine, data.named("only on rank " + std::to_string(rank)));
    submitted.fetch_add(1);
    if (rank == 3) {
      while (submitted.load() < 4) std::this_thread::yield();
      engine.abort(Status(ErrorInfo{.code = Errc::kAborted, .message = "rank 3: ValueError", .ranks = {3}}));
    }
    const Status& status = wait(engine, handle);
    EXPECT_EQ(status.code(), Errc::kAborted);
    EXPECT_EQ(status.message(), "rank 3: ValueError");
    expect_job_over(engine, Errc::kAborted);
    EXPECT_EQ(engine.shutdown(deadline_after(40)).code(), Errc::kAborted);
  });
}

TEST_CASE("a rank that leaves while others need it: RankLeft with rank and host") {
  for (const bool leave_first : {true, false}) {
    EngineJob job({.ranks = 3, .shut_down = false});
    std::atomic<int> submitted{0};
    std::atomic<bool> left{false};
    job.run([&](int rank, Engine& engine) {
      Floats data(4);
      if (rank == 2) {
        while (!leave_first && submitted.load() < 2) std::this_thread::yield();
        const Errc code = engine.shutdown(Clock::now()).code();
        // If the other ranks already wait, they may have noticed the loss before this rank has gone.
        EXPECT(code == Errc::kOk || (!leave_first && code == Errc::kRankLeft));
        left.store(true);
        return;
      }
      while (leave_first && !left.load()) std::this_thread::yield();
      const Submission one = data.named("x");
      const auto handles = engine.submit(std::span(&one, 1));
      submitted.fetch_add(1);
      // The other rank's submission may have ended the job already.
      const Status status = handles.ok() ? wait(engine, handles->front()) : handles.status();
      EXPECT_EQ(status.code(), Errc::kRankLeft);
      EXPECT_EQ(status.info().ranks.at(0), 2);
      EXPECT_EQ(status.info().host, EngineJob::host_of(2));
      expect_job_over(engine, Errc::kRankLeft);
    });
  }
}

TEST_CASE("shutdown drains: what all have submitted completes, although nobody waited for it") {
  for (int round = 0; round < 10; ++round) {
    EngineJob job({.ranks = 4, .shut_down = false});
    job.run([&](int, Engine& engine) {
      std::vector<Floats> data(20, Floats(100));
      std::vector<HandlePtr> handles;
      for (std::size_t i = 0; i < data.size(); ++i) {
        handles.push_back(submit(engine, data[i].named(std::to_string(i))));
      }
      EXPECT_OK(engine.shutdown(deadline_after(40)));
      for (std::size_t i = 0; i < data.size(); ++i) {
        EXPECT(handles[i]->done());
        EXPECT_OK(handles[i]->status());
        EXPECT_EQ(data[i].memory[99], 4.0F);
      }
      EXPECT_OK(engine.shutdown(deadline_after(1)));  // the second call has no effect
      const Submission late = data[0].named("late");
      const Status refused = engine.submit(std::span(&late, 1)).status();
      EXPECT_EQ(refused.code(), Errc::kShutDown);
      EXPECT(refused.info().usable);
    });
  }
}

TEST_CASE("a member that has waited long enough goes, with a warning, and the others work on") {
  EngineJob job({.ranks = 3, .shut_down = false});
  std::atomic<int> gone{0};
  job.run([&](int rank, Engine& engine) {
    EXPECT_OK(engine.add_process_set({0, 1}, false, deadline_after(40)));
    if (rank == 2) {
      EXPECT_OK(engine.shutdown(deadline_after(0.05)));
      job.kill(2);  // its process ends
      gone.fetch_add(1);
      return;
    }
    while (gone.load() < 1) std::this_thread::yield();
    for (int step = 0; step < 20; ++step) {
      Floats data(4);
      Submission one = data.named("among those that stay");
      one.process_set = 1;
      EXPECT_OK(wait(engine, submit(engine, one)));
    }
    if (rank == 1) {
      EXPECT_OK(engine.shutdown(deadline_after(0.05)));
      job.kill(1);
      gone.fetch_add(1);
      return;
    }
    while (gone.load() < 2) std::this_thread::yield();
    EXPECT_OK(engine.shutdown(deadline_after(40)));
  });
  const auto warnings = job.warnings();
  const auto warned = [&](const std::string& names) {
    return std::any_of(warnings.begin(), warnings.end(), [&](const std::string& line) {
      return has(line, names + " did not leave within") && has(line, "leaves without waiting");
    });
  };
  CHECK(warned("ranks 0, 1 (node0)"));
  CHECK(warned("rank 0 (node0)"));
}

TEST_CASE("the leader that leaves first stays for the others, with one warning") {
  EngineJob job({.ranks = 3, .shut_down = false});
  std::atomic<bool> leaving{false};
  const auto warned = [&] {
    const auto warnings = job.warnings();
    return std::count_if(warnings.begin(), warnings.end(), [](const std::string& line) {
      return has(line, "Rank 0 coordinates the job, so it waits for them");
    });
  };
  job.run([&](int rank, Engine& engine) {
    EXPECT_OK(engine.add_process_set({1, 2}, false, deadline_after(40)));
    if (rank == 0) {
      leaving.store(true);
      EXPECT_OK(engine.shutdown(deadline_after(0.02)));
      return;
    }
    while (!leaving.load()) std::this_thread::yield();
    // It runs until it has warned, and then long enough for many more warnings.
    TimePoint end = TimePoint::max();
    for (int step = 0; rank == 1 || step == 0; ++step) {
      if (end == TimePoint::max() && warned() > 0) end = deadline_after(0.3);
      Floats data(4);
      Submission one = data.named("after the leader left");
      one.process_set = 1;
      one.reduce = ReduceOp::kMax;
      data.memory[0] = Clock::now() > end ? 1 : 0;
      EXPECT_OK(wait(engine, submit(engine, one)));
      if (data.memory[0] > 0) break;
      if (rank == 2) step = -1;
    }
    EXPECT_OK(engine.shutdown(deadline_after(40)));
  });
  CHECK(warned() == 1);
}

TEST_CASE("a leader that dies after it has left is missed before the log has ended") {
  EngineJob job({.ranks = 3, .shut_down = false});
  std::atomic<bool> dead{false};
  job.run([&](int rank, Engine& engine) {
    if (rank == 0) {
      // Rank 0 stays for the others. The warning comes after the others have learned that it leaves.
      (void)engine.shutdown(deadline_after(0.02));
      return;
    }
    while (rank == 1 && job.warnings().empty()) std::this_thread::yield();
    if (rank == 1) job.kill(0);
    if (rank == 1) dead.store(true);
    while (!dead.load()) std::this_thread::yield();
    const TimePoint start = Clock::now();
    const Status left = engine.shutdown(deadline_after(20));
    EXPECT_EQ(left.code(), Errc::kRankLeft);
    if (!left.ok()) EXPECT_EQ(left.info().ranks, std::vector<int>{0});
    EXPECT(Clock::now() - start < std::chrono::seconds(10));
  });
}

TEST_CASE("a rank that went is missed by whoever needs it after all") {
  EngineJob job({.ranks = 3, .shut_down = false});
  std::atomic<bool> gone{false};
  job.run([&](int rank, Engine& engine) {
    if (rank == 2) {
      EXPECT_OK(engine.shutdown(Clock::now()));
      job.kill(2);
      gone.store(true);
      return;
    }
    while (!gone.load()) std::this_thread::yield();
    Floats data(4);
    const Submission one = data.named("x");
    const auto handles = engine.submit(std::span(&one, 1));
    const Status status = handles.ok() ? wait(engine, handles->front()) : handles.status();
    EXPECT_EQ(status.code(), Errc::kRankLeft);
    EXPECT_EQ(status.info().ranks.at(0), 2);
  });
}

TEST_CASE("shutdown with something in flight that never completes is an error that names it") {
  EngineJob job({.ranks = 2, .shut_down = false});
  std::atomic<bool> said{false};
  job.run([&](int rank, Engine& engine) {
    Floats data(4);
    if (rank == 1) {
      const HandlePtr handle = submit(engine, data.named("forgotten"));
      const Status status = engine.shutdown(deadline_after(0.05));
      EXPECT_EQ(status.code(), Errc::kTimeout);
      EXPECT_EQ(status.info().tensor, std::string("forgotten"));
      said.store(true);
      EXPECT_OK(wait(engine, handle));
    } else {
      while (!said.load()) std::this_thread::yield();
      EXPECT_OK(wait(engine, submit(engine, data.named("forgotten"))));
    }
    EXPECT_OK(engine.shutdown(deadline_after(40)));
  });
}

TEST_CASE("shutdown past its deadline can be called again") {
  EngineJob job({.ranks = 2, .shut_down = false});
  job.run([&](int, Engine& engine) {
    EXPECT_OK(engine.shutdown(Clock::now()));
    EXPECT_OK(engine.shutdown(Clock::now()));
  });
}

TEST_CASE("a wait has a deadline, and the operation can still be waited for") {
  EngineJob job({.ranks = 2});
  std::atomic<bool> timed_out{false};
  job.run([&](int rank, Engine& engine) {
    Floats data(4);
    while (rank == 1 && !timed_out.load()) std::this_thread::yield();
    const HandlePtr handle = submit(engine, data.named("x"));
    if (rank == 0) {
      EXPECT_EQ(engine.wait_all(std::span(&handle, 1), deadline_after(0.02)).code(), Errc::kTimeout);
      EXPECT_EQ(engine.wait_any(std::span(&handle, 1), Clock::now()).code(), Errc::kTimeout);
      timed_out.store(true);
    }
    EXPECT_OK(wait(engine, handle));
  });
}

TEST_CASE("a stalled tensor is reported with the ranks that miss it, then ends the job at the limit") {
  EngineJob job({.ranks = 4, .settings = {.stall_warning_time = 0.05, .stall_shutdown_time = 0.4}, .shut_down = false});
  job.run([&](int rank, Engine& engine) {
    Floats data(4);
    const HandlePtr handle = submit(engine, data.named(rank == 2 ? "other" : "slow"));
    const Status& status = wait(engine, handle);
    EXPECT_EQ(status.code(), Errc::kTimeout);
    EXPECT(!status.info().usable);
    EXPECT(!status.info().ranks.empty());
  });
  const auto warnings = job.warnings();
  REQUIRE_FALSE(warnings.empty());
  const bool named = std::any_of(warnings.begin(), warnings.end(), [](const std::string& line) {
    return has(line, "waiting for rank 2 (node1) to submit allreduce 'slow'");
  });
  CHECK(named);
}

TEST_CASE("another operation or group length under one name is a mismatch on every rank, and the job goes on") {
  EngineJob job({.ranks = 3, .settings = {.stall_warning_time = 0.1}});
  job.run([&](int rank, Engine& engine) {
    const auto expect_mismatch = [&](const Status& status, const std::string& one, const std::string& other) {
      EXPECT_EQ(status.code(), Errc::kMismatch);
      EXPECT(status.info().usable);
      EXPECT_EQ(status.info().ranks, std::vector<int>{1});
      EXPECT_OK(has(status.message(), one) && has(status.message(), other) ? Status() : status);
    };
    Floats data(4);
    Submission one = data.named(rank == 1 ? "allgather.k" : "allreduce.k");
    if (rank == 1) one.kind = OpKind::kAllgather;
    if (rank == 1) one.output = nullptr;
    expect_mismatch(wait(engine, submit(engine, one)), "allreduce 'allreduce.k'", "allgather 'allgather.k'");

    Floats more(4);
    std::vector<Submission> group{data.named(rank == 1 ? "allreduce.g_1of2" : "allreduce.g_1of1")};
    if (rank == 1) group.push_back(more.named("allreduce.g_2of2"));
    for (Submission& member : group) member.group = 0;
    const auto handles = *engine.submit(group);
    EXPECT_OK(engine.wait_all(handles, deadline_after(40)));
    for (const HandlePtr& handle : handles) expect_mismatch(handle->status(), "in a group of 2", "g_1of1");

    EXPECT_OK(wait(engine, submit(engine, data.named("allreduce.k"))));
  });
}

TEST_CASE("process sets: overlapping, side by side, removed and made again") {
  EngineJob job({.ranks = 5});
  job.run([&](int rank, Engine& engine) {
    for (int round = 0; round < 3; ++round) {
      const auto low = engine.add_process_set({2, 0, 1}, false, deadline_after(40));
      const auto high = engine.add_process_set({2, 3, 4}, false, deadline_after(40));
      EXPECT_OK(low);
      EXPECT_OK(high);
      EXPECT(*low != *high);
      EXPECT_EQ(engine.process_set_ranks(*low)->size(), 3U);
      std::vector<Floats> data(30, Floats(16, static_cast<float>(rank)));
      std::vector<HandlePtr> handles;
      for (std::size_t i = 0; i < data.size(); ++i) {
        const int sets[] = {0, *low, *high};
        const int set = sets[i % 3];
        if ((set == *low && rank > 2) || (set == *high && rank < 2)) continue;
        Submission one = data[i].named("same name " + std::to_string(i / 3));
        one.process_set = set;
        handles.push_back(submit(engine, one));
      }
      EXPECT_OK(engine.wait_all(handles, deadline_after(40)));
      for (std::size_t i = 0; i < data.size(); ++i) {
        const float sums[] = {10, 3, 9};
        const bool member = i % 3 == 0 || (i % 3 == 1 ? rank <= 2 : rank >= 2);
        EXPECT_EQ(data[i].memory[0], member ? sums[i % 3] : static_cast<float>(rank));
      }
      EXPECT_OK(engine.remove_process_set(*low, deadline_after(40)));
      EXPECT_OK(engine.remove_process_set(*high, deadline_after(40)));
      Submission late = data[0].named("late");
      late.process_set = *low;
      EXPECT_EQ(engine.submit(std::span(&late, 1)).status().code(), Errc::kInvalidArgument);
      EXPECT(!engine.process_set_ranks(*low).ok());
    }
  });
}

TEST_CASE("process sets that ranks disagree on, or that cannot be, are refused on all ranks; the next one is fine") {
  EngineJob job({.ranks = 3});
  job.run([&](int rank, Engine& engine) {
    const auto differs =
        engine.add_process_set(rank == 1 ? std::vector<int>{0, 1} : std::vector<int>{0, 2}, false, deadline_after(40));
    EXPECT_EQ(differs.status().code(), Errc::kMismatch);
    EXPECT_EQ(differs.status().info().ranks.at(0), 1);
    EXPECT_EQ(engine.add_process_set({0, 7}, false, deadline_after(40)).status().code(), Errc::kInvalidArgument);
    EXPECT_EQ(engine.remove_process_set(0, deadline_after(40)).code(), Errc::kInvalidArgument);
    EXPECT_EQ(engine.remove_process_set(99, deadline_after(40)).code(), Errc::kInvalidArgument);
    EXPECT_OK(engine.add_process_set({0, 1, 2}, false, deadline_after(40)));
  });
}

TEST_CASE("process sets of their members alone: two at once, the same ranks twice, unknown elsewhere") {
  EngineJob job({.ranks = 5});
  job.run([&](int rank, Engine& engine) {
    if (rank < 4) {
      const std::vector<int> mine = rank < 2 ? std::vector<int>{1, 0} : std::vector<int>{2, 3};
      const auto first = engine.add_process_set(mine, true, deadline_after(40));
      const auto second = engine.add_process_set(mine, true, deadline_after(40));
      EXPECT_OK(first);
      EXPECT_OK(second);
      EXPECT(*first != *second);
      Floats data(4, static_cast<float>(rank));
      for (const int set : {*first, *second}) {
        Submission one = data.named("x");
        one.process_set = set;
        EXPECT_OK(wait(engine, submit(engine, one)));
      }
      EXPECT_EQ(data.memory[0], rank < 2 ? 2.0F : 10.0F);
      EXPECT_OK(engine.remove_process_set(*first, deadline_after(40)));
      EXPECT(!engine.process_set_ranks(*first).ok());
      EXPECT_EQ(engine.process_set_ranks(*second)->size(), 2U);
    } else {
      EXPECT_EQ(engine.add_process_set({0, 1}, true, deadline_after(40)).status().code(), Errc::kInvalidArgument);
      EXPECT_EQ(engine.remove_process_set(1, deadline_after(40)).code(), Errc::kInvalidArgument);
      EXPECT(!engine.process_set_ranks(2).ok());
    }
    EXPECT_OK(engine.add_process_set({0, 1, 4}, false, deadline_after(40)));
  });
}

TEST_CASE("members that do not agree on a set of theirs alone are told, and make the next one") {
  EngineJob job({.ranks = 4});
  job.run([&](int rank, Engine& engine) {
    if (rank == 3) return;
    const auto differs = engine.add_process_set(rank == 0 ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2}, true,
                                                deadline_after(40));
    EXPECT_EQ(differs.status().code(), Errc::kMismatch);
    EXPECT(differs.status().info().usable);
    EXPECT_OK(engine.add_process_set({0, 1, 2}, true, deadline_after(40)));
  });
}

TEST_CASE("an engine that is destroyed without shutdown completes its handles") {
  EngineJob job({.ranks = 2, .shut_down = false});
  std::vector<HandlePtr> handles(2);
  std::vector<Floats> data(2, Floats(4));
  test::run_ranks(2, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto engine = job.make(rank);
    handles[r] = submit(*engine, data[r].named("only on rank " + std::to_string(rank)));
  });
  for (const HandlePtr& handle : handles) {
    REQUIRE(handle->done());
    CHECK_FALSE(handle->status().ok());
  }
}

}  // namespace
}  // namespace distrun::engine
