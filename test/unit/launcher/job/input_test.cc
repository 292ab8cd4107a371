// Standard input that is the terminal of a background job, or that other processes read too.
#include "launcher/job/input.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "launcher/spawn/poller.h"
#include "runtime/base/fd.h"
#include "test/support/temporary_file.h"

namespace distrun::launcher {
namespace {

// Runs in a background process whose terminal has a line. True if the process looks after 0.5, 1, 2, 4, 5, 5, ... s.
// After a resume (as after SIGCONT) it must look at once, and then from 0.5 s on again.
bool looks_ever_more_seldom() {
  Input input;
  const auto read_and_wait = [&input] {
    Poller poller;
    input.watch(poller, [](const auto&, const auto&) {});
    return poller.wait(deadline_after(30)).ok() && input.deadline().has_value();
  };
  input.open({0});
  Duration pause = std::chrono::milliseconds(500);
  if (!read_and_wait()) return false;
  for (int i = 0; i < 8; ++i) {
    const TimePoint now = *input.deadline();
    pause = std::min<Duration>(2 * pause, std::chrono::seconds(5));
    if (input.look(now) || *input.deadline() != now + pause) return false;
  }
  input.resume();
  if (input.deadline() || !read_and_wait()) return false;
  return *input.deadline() <= Clock::now() + std::chrono::milliseconds(500);
}

// Runs `job` in a new process group, so that the terminal does not belong to it.
int code_in_background(bool (*job)()) {
  ::signal(SIGTTIN, SIG_IGN);
  const pid_t child = ::fork();
  if (child < 0) return 2;
  if (child == 0) ::_exit(::setpgid(0, 0) == 0 && job() ? 0 : 1);
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

// True if a read does not block after the other reader has taken the data in the same round, and later data is read.
bool gives_way_to_another_reader() {
  ::alarm(20);
  std::array<char, 64> taken{};
  std::string pieces;
  Input input;
  input.open({0});
  Poller poller;
  poller.watch(0, POLLIN,
               [&](short) { pieces += ::read(0, taken.data(), taken.size()) == 6 ? "taken " : "not taken "; });
  const auto keep = [&](const auto&, const auto& bytes) { pieces += std::to_string(bytes.size()); };
  input.watch(poller, keep);
  if (!poller.wait(deadline_after(30)).ok() || pieces != "taken ") return false;
  // Processes that share this open file find it unchanged.
  if ((::fcntl(0, F_GETFL) & O_NONBLOCK) != 0 || ::write(3, "more\n", 5) != 5) return false;
  poller.clear();
  input.watch(poller, keep);
  return poller.wait(deadline_after(30)).ok() && pieces == "taken 5";
}

// True if a line is read, and then the end.
bool reads_to_the_end() {
  ::alarm(20);
  std::string pieces;
  Input input;
  input.open({0});
  while (pieces.size() < 2) {
    Poller poller;
    input.watch(poller, [&](const auto&, const auto& bytes) { pieces += std::to_string(bytes.size()); });
    if (!poller.wait(deadline_after(30)).ok()) return false;
    input.taken(0, {.more = true, .most = 6, .least = 6});
  }
  return pieces == "60";
}

// The size of the next piece, 0 at the end, -1 if none is wanted now.
int next_piece(Input& input) {
  int size = -1;
  Poller poller;
  input.watch(poller, [&size](const auto&, const auto& bytes) { size = static_cast<int>(bytes.size()); });
  return poller.wait(Clock::now()).ok() ? size : -2;
}

// True if a job whose rank has read the first line of two leaves the second one.
bool takes_one_line() {
  ::alarm(20);
  Input input;
  input.open({0});
  if (next_piece(input) != 10 || next_piece(input) != -1) return false;
  input.taken(0, {.more = false, .most = 5});
  return next_piece(input) == -1;
}

// True if a rank that reads slowly does not hold up another one, until they are far apart.
bool waits_for_the_slowest() {
  ::alarm(20);
  Input input;
  input.open({0, 1});
  std::uint64_t sent = 0;
  while (sent <= 64 * 1024) {
    const int size = next_piece(input);
    if (size <= 0 || next_piece(input) != -1) return false;
    sent += static_cast<std::uint64_t>(size);
    input.taken(0, {.more = true, .most = sent, .least = sent});
  }
  if (next_piece(input) != -1) return false;
  input.taken(1, {.more = true, .most = 10, .least = sent - 64 * 1024});
  if (next_piece(input) <= 0) return false;
  input.lost(0);
  input.lost(1);
  return next_piece(input) == -1;
}

bool ended_well(pid_t child) {
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Runs `job` in a process with `in` as its standard input. Its descriptor 3 writes to that input.
bool with_input(const Fd& in, const Fd& out, bool (*job)()) {
  const Fd writer(::fcntl(out.get(), F_DUPFD_CLOEXEC, 4));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::dup2(in.get(), 0) == 0 && ::dup2(writer.get(), 3) == 3 && job() ? 0 : 1);
  return ended_well(child);
}

TEST_CASE("a job in the background looks for its terminal ever more seldom") {
  int terminal = -1;
  const pid_t leader = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  REQUIRE(leader >= 0);
  if (leader == 0) ::_exit(code_in_background(looks_ever_more_seldom));
  const Fd owner(terminal);
  REQUIRE(::write(terminal, "typed\n", 6) == 6);
  CHECK(ended_well(leader));
}

TEST_CASE("what another reader of the terminal, pipe or socket has taken first is not waited for") {
  SECTION("a terminal") {
    int master = -1;
    int slave = -1;
    REQUIRE(::openpty(&master, &slave, nullptr, nullptr, nullptr) == 0);
    const Fd owner(master);
    const Fd terminal(slave);
    REQUIRE(::write(master, "typed\n", 6) == 6);
    CHECK(with_input(terminal, owner, gives_way_to_another_reader));
  }
  SECTION("a pipe") {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    const Fd in(ends[0]);
    const Fd out(ends[1]);
    REQUIRE(::write(out.get(), "typed\n", 6) == 6);
    CHECK(with_input(in, out, gives_way_to_another_reader));
  }
  SECTION("a socket") {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    const Fd in(ends[0]);
    const Fd out(ends[1]);
    REQUIRE(::write(out.get(), "typed\n", 6) == 6);
    CHECK(with_input(in, out, gives_way_to_another_reader));
  }
}

TEST_CASE("the end of a FIFO is read although its writers had gone before") {
  const test::TemporaryFile file;
  const std::string path = file.path();
  REQUIRE((::unlink(path.c_str()) == 0 && ::mkfifo(path.c_str(), 0600) == 0));
  const Fd in(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  {
    const Fd out(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    REQUIRE(::write(out.get(), "typed\n", 6) == 6);
  }
  CHECK(with_input(in, in, reads_to_the_end));
}

// The next bytes of this descriptor.
std::string rest_of(const Fd& in) {
  std::array<char, 64> bytes{};
  const ssize_t n = ::read(in.get(), bytes.data(), bytes.size());
  return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
}

TEST_CASE("what no rank has read stays in a file, a pipe and a socket") {
  std::array<int, 2> ends{};
  SECTION("a file") {
    const test::TemporaryFile file;
    const Fd in(::open(file.path().c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE((::write(in.get(), "zero\none.\ntwo.\n", 15) == 15 && ::lseek(in.get(), 5, SEEK_SET) == 5));
    CHECK(with_input(in, in, takes_one_line));
    CHECK(rest_of(in) == "two.\n");
    return;
  }
  SECTION("a pipe") { REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0); }
  SECTION("a socket") { REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0); }
  const Fd in(ends[0]);
  const Fd out(ends[1]);
  REQUIRE(::write(out.get(), "one.\ntwo.\n", 10) == 10);
  CHECK(with_input(in, out, takes_one_line));
  CHECK(rest_of(in) == "two.\n");
}

TEST_CASE("a rank that reads slowly holds up the others only when they are far ahead") {
  const test::TemporaryFile file;
  const Fd in(::open(file.path().c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::ftruncate(in.get(), 300'000) == 0);
  CHECK(with_input(in, in, waits_for_the_slowest));
}

}  // namespace
}  // namespace distrun::launcher
