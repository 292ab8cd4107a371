// A terminal and a pipe that belong to another user, as after su. They cannot be opened again, so they cannot be made
// non-blocking only for the head.
#include "launcher/report/terminal.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <future>
#include <string>

#include "launcher/spawn/poller.h"

namespace distrun::launcher {
namespace {

constexpr uid_t kNoRank = 65534;

struct Ends {
  Fd reader;
  Fd writer;
};

Ends foreign_terminal() {
  int reader = -1;
  int writer = -1;
  REQUIRE(::openpty(&reader, &writer, nullptr, nullptr, nullptr) == 0);
  REQUIRE(::fchmod(writer, 0) == 0);
  return {Fd(reader), Fd(writer)};
}

Ends foreign_pipe() {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  REQUIRE(::fchmod(ends[1], 0) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

// Makes it as a user who may not open it, because root may open everything.
Terminal made_over(const Ends& ends) {
  const bool root = ::geteuid() == 0;
  if (root) REQUIRE(::seteuid(kNoRank) == 0);
  Terminal out(ends.writer.get());
  if (root) REQUIRE(::seteuid(0) == 0);
  REQUIRE(out.open().ok());
  return out;
}

void round(Terminal& terminal, std::string& text, TimePoint until) {
  Poller poller;
  terminal.look();
  terminal.watch(poller, text);
  REQUIRE(poller.wait(until).ok());
}

// Returns how long rounds of a loop take when no process reads. If they are stuck, it returns after 10 s.
Duration rounds_without_reader(Terminal& terminal, std::string& text, Ends& ends) {
  const TimePoint before = Clock::now();
  auto rounds = std::async(std::launch::async, [&] {
    for (int i = 0; i < 50; ++i) round(terminal, text, Clock::now() + std::chrono::milliseconds(2));
  });
  if (rounds.wait_for(std::chrono::seconds(10)) != std::future_status::ready) ends.reader.reset();
  rounds.get();
  return Clock::now() - before;
}

// Reads until the text has `size` bytes.
std::string read_up_to(const Ends& ends, std::size_t size, Terminal& terminal, std::string& rest) {
  std::string out;
  std::array<char, 4096> part{};
  const TimePoint until = deadline_after(30);
  ::fcntl(ends.reader.get(), F_SETFL, O_NONBLOCK);
  while (out.size() < size && Clock::now() < until) {
    const ssize_t n = ::read(ends.reader.get(), part.data(), part.size());
    if (n > 0) out.append(part.data(), static_cast<std::size_t>(n));
    round(terminal, rest, Clock::now() + std::chrono::milliseconds(1));
  }
  return out;
}

std::string numbered_lines(int count, const std::string& end = "\n") {
  std::string out;
  for (int i = 0; i < count; ++i) out += "line " + std::to_string(i) + end;
  return out;
}

TEST_CASE("a terminal of another user that nobody reads does not hold the loop") {
  Ends ends = foreign_terminal();
  Terminal terminal = made_over(ends);
  const std::string all = numbered_lines(20'000);
  std::string text = all;
  CHECK(rounds_without_reader(terminal, text, ends) < std::chrono::seconds(5));
  REQUIRE(ends.reader.valid());
  CHECK_FALSE(terminal.closed());
  CHECK(terminal.taken() > 0);
  CHECK(terminal.taken() < all.size());
  const std::string shown = numbered_lines(20'000, "\r\n");
  CHECK(read_up_to(ends, shown.size(), terminal, text) == shown);
  CHECK(terminal.in_hand() == 0);
}

TEST_CASE("a pipe of another user that nobody reads, and that its owner has made non-blocking, loses nothing") {
  Ends ends = foreign_pipe();
  REQUIRE(::fcntl(ends.writer.get(), F_SETFL, O_NONBLOCK) == 0);
  Terminal terminal = made_over(ends);
  const std::string all = numbered_lines(20'000);
  std::string text = all;
  CHECK(rounds_without_reader(terminal, text, ends) < std::chrono::seconds(5));
  REQUIRE(ends.reader.valid());
  CHECK(read_up_to(ends, all.size(), terminal, text) == all);
  CHECK(terminal.lost() == 0);
}

TEST_CASE("a terminal or pipe of another user whose reader goes is closed, and not a full disk") {
  for (Ends (*made)() : {foreign_terminal, foreign_pipe}) {
    Ends ends = made();
    Terminal terminal = made_over(ends);
    std::string text = numbered_lines(20'000);
    rounds_without_reader(terminal, text, ends);
    ends.reader.reset();
    const TimePoint until = deadline_after(30);
    while (!terminal.closed() && Clock::now() < until) {
      text += "x";
      round(terminal, text, Clock::now() + std::chrono::milliseconds(2));
    }
    CHECK(terminal.closed());
    CHECK(terminal.lost() == 0);
  }
}

}  // namespace
}  // namespace distrun::launcher
