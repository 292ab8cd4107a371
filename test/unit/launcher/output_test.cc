// What the launcher shows, on standard outputs that are pipes of the test's.
#include "launcher/report/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <string>
#include <string_view>

#include "launcher/spawn/poller.h"

namespace distrun::launcher {
namespace {

// Standard output and error while an Output is made, which opens them anew for itself.
class Pipes {
 public:
  Pipes() {
    for (int i = 0; i < 2; ++i) {
      std::array<int, 2> ends{};
      REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
      readers_[static_cast<std::size_t>(i)].reset(ends[0]);
      const Fd writer(ends[1]);
      saved_[static_cast<std::size_t>(i)].reset(::fcntl(i + 1, F_DUPFD_CLOEXEC, 0));
      REQUIRE(::dup2(writer.get(), i + 1) == i + 1);
    }
  }
  void restore() {
    for (int i = 0; i < 2; ++i) ::dup2(saved_[static_cast<std::size_t>(i)].get(), i + 1);
  }
  std::string read(int stream) {
    std::string text(1 << 20, '\0');
    const int fd = readers_[static_cast<std::size_t>(stream - 1)].get();
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    const ssize_t size = ::read(fd, text.data(), text.size());
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
  }

 private:
  std::array<Fd, 2> readers_;
  std::array<Fd, 2> saved_;
};

StreamBytes lines_of(std::size_t bytes) {
  StreamBytes out;
  const std::string_view line = "a line of a rank\n";
  while (out.bytes.size() < bytes) {
    for (const char c : line) out.bytes.push_back(static_cast<std::byte>(c));
  }
  return out;
}

void flush(Output& output) {
  Poller poller;
  output.watch(poller);
  REQUIRE(poller.wait(Clock::now()).ok());
}

TEST_CASE("a reader that takes some of much and then nothing is told of, though nothing else happens") {
  Pipes pipes;
  auto made = Output::create({.hosts = {"here"}});
  pipes.restore();
  REQUIRE(made.ok());
  Output& output = **made;
  const TimePoint start = Clock::now();
  output.write(lines_of(512 << 10), start);
  flush(output);  // what a pipe holds: the reader has taken that, as far as the launcher can see
  output.tick(start);
  CHECK(output.take_credits().empty());  // so agents send nothing that would wake the launcher

  REQUIRE(output.deadline());
  CHECK(*output.deadline() <= start + std::chrono::seconds(5));
  output.tick(start + std::chrono::seconds(5));
  flush(output);
  CHECK(pipes.read(2).find("nobody has read standard output for 5 s") != std::string::npos);

  while (!pipes.read(1).empty()) flush(output);
  output.tick(start + std::chrono::seconds(6));
  flush(output);
  CHECK(pipes.read(2).find("standard output is read again; ranks go on") != std::string::npos);
  CHECK(output.take_credits().size() == 1);
  CHECK_FALSE(output.deadline());
}

}  // namespace
}  // namespace distrun::launcher
