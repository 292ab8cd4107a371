// HostLink between real processes: deaths at any moment, limits, and no leftovers.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "test/support/store_thread.h"

extern const char* const kHostRank;

namespace distrun::net {
namespace {

constexpr int kKeyFd = 10;

struct Pipe {
  Pipe() {
    int ends[2] = {-1, -1};
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
  Fd read, write;
};

// Ranks as processes of the program host_rank. The destructor ends all of them.
class Ranks {
 public:
  Ranks(int size, const std::string& task, double seconds = 60) : store_(size) {
    auto key = store_.key().to_descriptor();
    REQUIRE(key.ok());
    for (int rank = 0; rank < size; ++rank) start(rank, task, std::to_string(seconds), key->get());
    input_.read.reset();
  }
  ~Ranks() {
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void kill(int rank) { ::kill(pids_[static_cast<std::size_t>(rank)], SIGKILL); }

  // Everything that this rank printed until its standard output ended.
  std::string output(int rank) {
    const Fd& pipe = outputs_[static_cast<std::size_t>(rank)].read;
    std::string text;
    std::array<char, 4096> buffer;
    for (const TimePoint deadline = deadline_after(50);;) {
      pollfd entry{.fd = pipe.get(), .events = POLLIN, .revents = 0};
      if (::poll(&entry, 1, 1000) == 0 && Clock::now() > deadline) return text + " (still running)";
      if (entry.revents == 0) continue;
      const ssize_t got = ::read(pipe.get(), buffer.data(), buffer.size());
      if (got <= 0) return text;
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
  // The first line of its output.
  std::string line(int rank) {
    const Fd& pipe = outputs_[static_cast<std::size_t>(rank)].read;
    std::string text;
    for (char byte = 0; byte != '\n' && ::read(pipe.get(), &byte, 1) == 1;) text += byte;
    return text;
  }
  // Ends the workers.
  void close_input() { input_.write.reset(); }

 private:
  void start(int rank, const std::string& task, const std::string& seconds, int key) {
    Environment environment = to_environment(store_.world(rank));
    environment["DISTRUN_KEY_FD"] = std::to_string(kKeyFd);
    std::vector<std::string> texts;
    for (const auto& [name, value] : environment) texts.push_back(name + "=" + value);
    std::vector<char*> pointers;
    for (std::string& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    Pipe& output = outputs_.emplace_back();
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, input_.read.get(), STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, output.write.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, key, kKeyFd);
    std::string program = kHostRank;
    std::string task_text = task;
    std::string seconds_text = seconds;
    char* arguments[] = {program.data(), task_text.data(), seconds_text.data(), nullptr};
    pid_t pid = -1;
    REQUIRE(::posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, pointers.data()) == 0);
    ::posix_spawn_file_actions_destroy(&actions);
    pids_.push_back(pid);
    output.write.reset();
  }

  test::StoreThread store_;
  Pipe input_;
  std::vector<Pipe> outputs_;
  std::vector<pid_t> pids_;
};

TEST_CASE("every rank learns of a death, whenever it comes, and which rank it was", "[host_link]") {
  std::minstd_rand random(std::random_device{}());
  for (const int size : {2, 3, 5, 8}) {
    for (int phase = 0; phase < 6; ++phase) {
      const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
      // The moment of death varies from the first instructions to the middle of the talk.
      const auto delay = std::chrono::microseconds(random() % (phase < 3 ? 30'000 : 300'000));
      CAPTURE(size, victim, delay.count());
      Ranks ranks(size, "talk", 3);
      std::this_thread::sleep_for(delay);
      ranks.kill(victim);
      for (int rank = 0; rank < size; ++rank) {
        const std::string output = ranks.output(rank);
        CAPTURE(rank, output);
        if (rank == victim) {
          CHECK(output.empty());
        } else if (output.starts_with("lost")) {
          CHECK(output.starts_with("lost " + std::to_string(victim) + " "));
        } else {
          CHECK(output.starts_with("error"));  // the victim died during the set-up
        }
      }
    }
  }
}

TEST_CASE("a death is seen although the dead rank's forked workers live", "[host_link]") {
  Ranks ranks(4, "workers");
  for (int rank = 0; rank < 4; ++rank) REQUIRE(ranks.line(rank) == "about to sleep\n");
  const auto killed = Clock::now().time_since_epoch().count();
  ranks.kill(2);
  for (const int rank : {0, 1, 3}) {
    std::istringstream output(ranks.output(rank));
    std::string word;
    int lost = -1;
    long long when = 0;
    output >> word >> lost >> when;
    CHECK(word == "lost");
    CHECK(lost == 2);
    INFO("rank " << rank << " saw it after " << (when - killed) / 1000 << " us");
    CHECK(when > killed);
  }
  ranks.close_input();
}

struct Refusal {
  std::string task;
  Errc code;
  std::string text;
};

TEST_CASE("what the system refuses to one rank is the same error on all, and never a signal", "[host_link]") {
  const std::vector<Refusal> refusals = {
      {"no-memfd", Errc::kSystem, "the system refuses memfd_create"},
      {"no-socketpair", Errc::kSystem, "no socket pair"},
      {"small-files", Errc::kOutOfMemory, "the file size limit (ulimit -f) is 100000 bytes"},
      {"no-fallocate", Errc::kSystem, "cannot reserve"},
#ifndef __SANITIZE_ADDRESS__  // the sanitizer opens a pipe to check a pointer, and reports an error if it cannot
      {"few-descriptors", Errc::kSystem, "Raise ulimit -n"},
#endif
  };
  for (const Refusal& refusal : refusals) {
    Ranks ranks(3, refusal.task);
    for (int rank = 0; rank < 3; ++rank) {
      const std::string output = ranks.output(rank);
      CAPTURE(refusal.task, rank, output);
      CHECK(output.starts_with("error " + std::to_string(static_cast<int>(refusal.code)) + " "));
      CHECK(output.find(refusal.text) != std::string::npos);
    }
  }
}

TEST_CASE("shares that are refused again and again leave no mail behind", "[host_link]") {
  for (const std::string task : {"refused-by-maker", "refused-by-member"}) {
    Ranks ranks(8, task);
    for (int rank = 0; rank < 8; ++rank) {
      CAPTURE(task, rank);
      CHECK(ranks.output(rank) == "done\n");
    }
  }
}

TEST_CASE("processes share memory", "[host_link]") {
  Ranks ranks(4, "share");
  for (int rank = 0; rank < 4; ++rank) CHECK(ranks.output(rank) == "done\n");
}

}  // namespace
}  // namespace distrun::net
