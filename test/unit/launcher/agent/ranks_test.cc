// Ranks are shells, and the test plays their agent.
#include "launcher/agent/ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "launcher/exit_codes.h"
#include "runtime/net/identity/world.h"

namespace distrun::launcher {
namespace {

class Shells {
 public:
  explicit Shells(const std::string& script) {
    job_.host = "h1";
    job_.common.command = {"sh", "-c", script};
    job_.common.cwd = "/";
  }
  ~Shells() {
    ranks.kill();
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
  }
  Shells(const Shells&) = delete;
  Shells& operator=(const Shells&) = delete;

  pid_t start(const RankPlan& plan, const std::string& program = "/bin/sh") {
    auto key = net::JobKey::generate().to_descriptor();
    REQUIRE(key.ok());
    const auto pid = ranks.start(plan, {.common = &job_.common, .program = program}, *std::move(key));
    REQUIRE(pid.ok());
    return *pid;
  }
  // Waits until this number of ranks run their program.
  void await_exec(int count) {
    Poller poller;
    while (count > 0) {
      poller.clear();
      ranks.watch(poller, collect(), [&count](RankProcess& rank) {
        if (rank.process().take_exec_report()) --count;
      });
      REQUIRE(poller.wait(deadline_after(60)).ok());
    }
  }
  // Waits for the end of one rank.
  RankProcess* end_of(pid_t pid, int& status) {
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    return ranks.reaped(pid);
  }
  [[nodiscard]] const Prepare& job() const { return job_; }
  RankProcess::OnOutput collect() {
    return [this](const StreamBytes& bytes) {
      output.append(reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size());
    };
  }

  Ranks ranks;
  std::string output;

 private:
  Prepare job_;
};

TEST_CASE("a rank that has ended is known by its process, and its last output comes afterwards") {
  Shells shells("echo said; exit 3");
  const pid_t pid = shells.start({.rank = 5});
  CHECK(shells.ranks.alive());
  CHECK(shells.ranks.reaped(1) == nullptr);
  int status = 0;
  RankProcess* const rank = shells.end_of(pid, status);
  REQUIRE(rank != nullptr);
  CHECK(rank->rank() == 5);
  CHECK(WEXITSTATUS(status) == 3);
  CHECK_FALSE(shells.ranks.alive());
  CHECK(shells.ranks.reaped(pid) == nullptr);
  CHECK(shells.ranks.drain(shells.collect(), false).ranks == std::vector<int>{5});
  CHECK(shells.output == "said\n");
  const Ranks::Drained last = shells.ranks.drain(shells.collect(), true);
  CHECK(last.ranks.empty());  // reported only once
  CHECK(last.all_closed);
}

TEST_CASE("a signal reaches the ranks that it names, and KILL for some means that they are not needed") {
  Shells shells("exec sleep 100");
  const pid_t first = shells.start({.rank = 0});
  const pid_t second = shells.start({.rank = 1});
  shells.await_exec(2);
  shells.ranks.signal({.signal = SIGKILL, .whole_group = true, .ranks = {1}});
  int status = 0;
  REQUIRE(shells.end_of(second, status) != nullptr);
  CHECK(WTERMSIG(status) == SIGKILL);
  CHECK(shells.ranks.not_needed(1));
  CHECK_FALSE(shells.ranks.not_needed(0));
  CHECK(shells.ranks.alive());
  CHECK_FALSE(shells.ranks.terminate({7}, false));
  CHECK(shells.ranks.terminate({}, true));
  REQUIRE(shells.end_of(first, status) != nullptr);
  CHECK(WTERMSIG(status) == SIGTERM);
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

// Runs the ranks until there is a report about their input.
InputTaken next_report(Shells& shells) {
  for (;;) {
    if (const auto report = shells.ranks.input_taken()) return *report;
    Poller poller;
    shells.ranks.watch(poller, shells.collect(), [](RankProcess& rank) { rank.process().take_exec_report(); });
    REQUIRE(poller.wait(deadline_after(60)).ok());
  }
}

TEST_CASE("input counts as read when a rank has read it, not when it is in the pipe") {
  Shells shells("read line; echo got $line");
  CHECK_FALSE(shells.ranks.input_taken());
  const pid_t pid = shells.start({.rank = 0, .input = RankInput::kPipe});
  shells.ranks.add_input(bytes_of("it\nrest\n"));
  CHECK_FALSE(shells.ranks.input_taken());
  int status = 0;
  REQUIRE(shells.end_of(pid, status) != nullptr);
  shells.ranks.drain(shells.collect(), true);
  CHECK(shells.output == "got it\n");
  const auto left = shells.ranks.input_left();
  REQUIRE(left);
  CHECK(left->most == 3);
  const InputTaken last = next_report(shells);
  CHECK_FALSE(last.more);
  CHECK(last.most == 3);
}

TEST_CASE("a rank that has read all its input asks for more, and one that reads none is behind") {
  Shells shells("[ $RANK = 1 ] && exec sleep 100; cat >/dev/null");
  shells.start({.rank = 0, .input = RankInput::kPipe, .environment = {{"RANK", "0"}}});
  shells.start({.rank = 1, .input = RankInput::kPipe, .environment = {{"RANK", "1"}}});
  shells.ranks.add_input(bytes_of(std::string(10'000, 'x')));
  const InputTaken first = next_report(shells);
  CHECK(first.more);
  CHECK(first.most == 10'000);
  CHECK(first.least == 0);
  shells.ranks.add_input(bytes_of("more"));
  CHECK(next_report(shells).most == 10'004);
  shells.ranks.end_input();
  CHECK_FALSE(next_report(shells).more);
  CHECK_FALSE(shells.ranks.input_left());
}

TEST_CASE("a rank that has closed its input is not asked") {
  Shells shells("exec <&-; exec sleep 100");
  shells.start({.rank = 0, .input = RankInput::kPipe});
  shells.ranks.add_input(bytes_of("it\n"));
  const InputTaken report = next_report(shells);
  CHECK_FALSE(report.more);
  CHECK(report.most == 0);
}

TEST_CASE("a rank whose program cannot be executed says why") {
  Shells shells("");
  const pid_t pid = shells.start({.rank = 2}, "/dev/null/none");
  int status = 0;
  RankProcess* const rank = shells.end_of(pid, status);
  REQUIRE(rank != nullptr);
  const auto fault = exec_fault(*rank, shells.job());
  REQUIRE(fault);
  CHECK(fault->exit_code == exit_code::kMissing);
  CHECK(fault->text.starts_with("rank 2 on host h1 cannot execute /dev/null/none: "));
  CHECK_FALSE(exec_fault(*rank, shells.job()));
}

// Waits until the process of the only rank is in this state.
RankStates await_state(const Ranks& ranks, const AskStates& question, char state) {
  const TimePoint deadline = deadline_after(60);
  for (;;) {
    RankStates answer = ranks.states(question);
    REQUIRE(answer.ranks.size() == 1);
    if (answer.ranks.front().state == state || Clock::now() > deadline) return answer;
    ::usleep(1000);
  }
}

TEST_CASE("it is known whether a rank is stopped") {
  Shells shells("exec sleep 1000");
  const pid_t pid = shells.start({.rank = 5});
  shells.await_exec(1);
  CHECK(await_state(shells.ranks, {.round = 9}, 'S').round == 9);
  ::kill(pid, SIGSTOP);
  const RankStates stopped = await_state(shells.ranks, {}, 'T');
  CHECK(stopped.ranks.front().state == 'T');
  CHECK(stopped.ranks.front().rank == 5);
  CHECK(stopped.ranks.front().pid == pid);
  ::kill(pid, SIGCONT);
  CHECK(await_state(shells.ranks, {}, 'S').ranks.front().state == 'S');
  ::kill(pid, SIGKILL);
  CHECK(await_state(shells.ranks, {}, 'Z').ranks.front().state == 'Z');
  int status = 0;
  shells.end_of(pid, status);
  CHECK(shells.ranks.states({}).ranks.empty());
}

TEST_CASE("of a program below a shell that is in a session, its own process counts") {
  Shells shells("sleep 1000 & echo $!; wait");
  const pid_t shell = shells.start({.rank = 5});
  Poller poller;
  while (shells.output.find('\n') == std::string::npos) {
    poller.clear();
    shells.ranks.watch(poller, shells.collect(), [](RankProcess& rank) { rank.process().take_exec_report(); });
    REQUIRE(poller.wait(deadline_after(60)).ok());
  }
  const pid_t below = std::stoi(shells.output);
  ::kill(below, SIGSTOP);
  const RankStates stopped = await_state(shells.ranks, {.sessions = {{.rank = 5, .pid = below}}}, 'T');
  CHECK(stopped.ranks.front().state == 'T');
  CHECK(stopped.ranks.front().pid == below);
  // The answer ignores a process that is not below the rank's process.
  CHECK(shells.ranks.states({.sessions = {{.rank = 5, .pid = ::getpid()}}}).ranks.front().pid == shell);
  CHECK(shells.ranks.states({.sessions = {{.rank = 6, .pid = below}}}).ranks.front().pid == shell);
  ::kill(below, SIGKILL);
}

}  // namespace
}  // namespace distrun::launcher
