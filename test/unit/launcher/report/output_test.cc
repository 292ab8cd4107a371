// The launcher's output. Standard output and error are pipes of the test.
#include "launcher/report/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "launcher/spawn/poller.h"
#include "test/support/stuck_disk.h"
#include "test/support/temporary_file.h"

namespace distrun::launcher {
namespace {

// Replaces standard output and error while an Output is made. The Output opens them again for itself.
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

// Makes an Output that writes to `pipes`. Afterwards standard output and error are the test's again.
std::unique_ptr<Output> made_over(Pipes& pipes, const OutputConfig& config) {
  auto made = Output::create(config);
  pipes.restore();
  REQUIRE(made.ok());
  return *std::move(made);
}

void flush(Output& output) {
  Poller poller;
  output.watch(poller);
  REQUIRE(poller.wait(Clock::now()).ok());
}

TEST_CASE("tracebacks of ranks that Ctrl-C interrupts while they load are not shown, and all errors if asked for") {
  for (const bool all : {false, true}) {
    Pipes pipes;
    OutputConfig config{.hosts = {"here", "here"}};
    config.options.all_errors = all;
    auto made = made_over(pipes, config);
    made->errors().fold_interrupts({0, 1});
    const std::string traceback =
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n"
        "    import torch\nKeyboardInterrupt\n";
    for (const int rank : {0, 1}) {
      StreamBytes bytes{.rank = rank, .stream = 1};
      for (const char c : traceback) bytes.bytes.push_back(static_cast<std::byte>(c));
      made->write(bytes, Clock::now());
    }
    made->finish_all();
    flush(*made);
    const std::string shown = pipes.read(2);
    CHECK((shown.find("KeyboardInterrupt") != std::string::npos) == all);
    CHECK(made->errors().interrupted().size() == (all ? 0 : 2));
  }
}

TEST_CASE("a reader that takes some of much and then nothing is told of, though nothing else happens") {
  Pipes pipes;
  auto made = made_over(pipes, {.hosts = {"here"}});
  Output& output = *made;
  const TimePoint start = Clock::now();
  output.write(lines_of(512 << 10), start);
  flush(output);  // this much fits into a pipe, so for the launcher the reader has taken it
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

// A directory for logs. The standard output of rank 0 goes to a stuck disk there.
class StuckLogs {
 public:
  StuckLogs() {
    REQUIRE(::mkdtemp(path_) != nullptr);
    std::filesystem::create_symlink(disk_.path(), path() + "/rank.0.out");
  }
  ~StuckLogs() { std::filesystem::remove_all(path()); }
  StuckLogs(const StuckLogs&) = delete;
  StuckLogs& operator=(const StuckLogs&) = delete;
  [[nodiscard]] std::string path() const { return path_; }
  test::StuckDisk& disk() { return disk_; }

 private:
  test::StuckDisk disk_;
  char path_[64] = "/tmp/distrun-test-XXXXXX";
};

struct OverStuckDisk {
  Pipes pipes;
  StuckLogs logs;
  std::unique_ptr<Output> made = made_over(pipes, {.options = {.directory = logs.path()}, .hosts = {"here"}});
  Output& output = *made;
};

std::string text_of(const StreamBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size()};
}

TEST_CASE_METHOD(OverStuckDisk,
                 "a stuck disk is told of where only the merged lines made it so much that agents get no credit") {
  const TimePoint start = Clock::now();
  output.begin();
  output.write(lines_of(200 << 10), start);
  flush(output);
  logs.disk().wait_until_full();
  output.tick(start);
  CHECK(output.take_credits().empty());
  REQUIRE(output.deadline());
  CHECK(*output.deadline() <= start + std::chrono::seconds(5));
}

TEST_CASE_METHOD(OverStuckDisk,
                 "ranks wait for a disk that is stuck, the loop does not, and everything arrives in order") {
  const TimePoint start = Clock::now();
  output.begin();
  std::string expected;
  for (int i = 0; i < 10; ++i) {
    StreamBytes bytes = lines_of(64 << 10);
    bytes.bytes.front() = static_cast<std::byte>('0' + i);
    expected += text_of(bytes);
    output.write(bytes, start);
    flush(output);
    pipes.read(1);
  }
  while (!pipes.read(1).empty()) flush(output);  // destinations with a reader are not behind
  logs.disk().wait_until_full();
  output.tick(start);
  // Each of the writes would block for 5 s. With sanitizers and other work, the test itself takes some seconds.
  CHECK(Clock::now() - start < std::chrono::seconds(30));
  CHECK(output.take_credits().empty());
  CHECK(output.behind());
  REQUIRE(output.deadline());
  output.tick(start + std::chrono::seconds(5));
  flush(output);
  CHECK(pipes.read(2).find(logs.path() + " (--output-dir) has taken nothing for 5 s") != std::string::npos);

  std::string text;
  std::thread reader([&] { text = logs.disk().read_all(); });
  const TimePoint until = deadline_after(30);
  while (output.pending() && Clock::now() < until) {
    Poller poller;
    output.watch(poller);
    if (output.pending()) REQUIRE(poller.wait(until).ok());
    pipes.read(1);
  }
  CHECK_FALSE(output.pending());
  CHECK_FALSE(output.lost());
  CHECK(output.take_credits().size() == 1);
  output.tick(start + std::chrono::seconds(6));
  flush(output);
  CHECK(pipes.read(2).find("(--output-dir) takes text again; ranks go on") != std::string::npos);
  made.reset();
  reader.join();
  CHECK(text == expected);
}

TEST_CASE_METHOD(OverStuckDisk, "a dead disk is given up a second after the user insists") {
  output.begin();
  const TimePoint start = Clock::now();
  output.write(lines_of(64 << 10), start);
  output.finish_all();
  flush(output);
  logs.disk().wait_until_full();
  output.end_soon();
  output.tick(start);
  CHECK(output.pending());
  REQUIRE(output.deadline());
  CHECK(*output.deadline() <= start + std::chrono::seconds(1));
  output.tick(start + std::chrono::seconds(1));
  while (!pipes.read(1).empty()) flush(output);
  flush(output);
  const std::string warning = logs.path() + " (--output-dir) takes nothing; what was still to be written there is lost";
  CHECK(pipes.read(2).find(warning) != std::string::npos);
  CHECK_FALSE(output.pending());
  CHECK(output.lost());
}

TEST_CASE_METHOD(OverStuckDisk, "a disk that does not even empty its files is given up too") {
  output.begin();
  output.finish_all();
  output.end_soon();
  const TimePoint start = Clock::now();
  output.tick(start);
  CHECK(output.pending());
  output.tick(start + std::chrono::seconds(1));
  flush(output);
  CHECK(pipes.read(2).find("(--output-dir) takes nothing") != std::string::npos);
  CHECK_FALSE(output.pending());
}

// Makes standard error a file while this object lives.
class ErrorsToFile {
 public:
  explicit ErrorsToFile(const std::string& path) : saved_(::fcntl(2, F_DUPFD_CLOEXEC, 0)) {
    const Fd writer(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    REQUIRE(::dup2(writer.get(), 2) == 2);
  }
  ~ErrorsToFile() { ::dup2(saved_.get(), 2); }
  ErrorsToFile(const ErrorsToFile&) = delete;
  ErrorsToFile& operator=(const ErrorsToFile&) = delete;

 private:
  Fd saved_;
};

// Writes the rest as the end of a job does, within a time limit.
void write_all(Output& output) {
  const TimePoint until = deadline_after(10);
  while (output.pending() && Clock::now() < until) {
    Poller poller;
    output.watch(poller);
    if (output.pending()) REQUIRE(poller.wait(until).ok());
    output.tick(Clock::now());
  }
}

TEST_CASE("text that comes when a file has just taken what was before it is not forgotten") {
  const test::TemporaryFile file;
  auto made = [&] {
    const ErrorsToFile there(file.path());
    return Output::create({});
  }();
  REQUIRE(made.ok());
  Output& output = **made;
  for (const std::string text : {"one", "two"}) {
    output.print(text);
    output.tick(Clock::now());
    Poller poller;
    output.watch(poller);
    const TimePoint until = deadline_after(10);
    while (file.text().find(text) == std::string::npos && Clock::now() < until) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the loop has not noticed it yet
  }
  CHECK(file.text() == "distrun: one\ndistrun: two\n");
  write_all(output);
  CHECK_FALSE(output.pending());
}

TEST_CASE("a text of no lines leaves nothing, not even a time stamp") {
  const test::TemporaryFile file;
  auto made = [&] {
    const ErrorsToFile there(file.path());
    return Output::create({.options = {.timestamp = true}});
  }();
  REQUIRE(made.ok());
  (*made)->print("");
  write_all(**made);
  CHECK(file.text().empty());
}

TEST_CASE("what a file has in hand comes before what the Output that follows writes") {
  const test::TemporaryFile file;
  auto [earlier, later] = [&] {
    const ErrorsToFile there(file.path());
    return std::pair{Output::create({}), Output::create({.hosts = {"here"}})};
  }();
  REQUIRE((earlier.ok() && later.ok()));
  const std::string much(std::size_t{32} << 20, 'a');
  (*earlier)->print(much);
  flush(**earlier);
  (*later)->follow(**earlier);
  earlier->reset();
  (*later)->print("later");
  write_all(**later);
  CHECK((file.text() == "distrun: " + much + "\ndistrun: later\n"));
}

// A line of rank 0. `second` is a time on its host's clock.
StreamBytes line_at(int second, std::uint8_t stream, const std::string& text) {
  StreamBytes out{.stream = stream, .when = static_cast<std::uint64_t>(second) * 1'000'000};
  for (const char c : text + "\n") out.bytes.push_back(static_cast<std::byte>(c));
  return out;
}

StreamBytes bytes_of(std::string_view text) {
  StreamBytes out;
  for (const char c : text) out.bytes.push_back(static_cast<std::byte>(c));
  return out;
}

TEST_CASE("a progress bar that has wiped itself out leaves no blank line in a log") {
  Pipes pipes;
  auto made = made_over(pipes, {.hosts = {"here"}});
  Output& output = *made;
  const TimePoint start = Clock::now();
  output.begin();
  output.write(bytes_of("\r 60%\r     \r"), start);
  output.tick(start + std::chrono::seconds(10));
  flush(output);
  CHECK(pipes.read(1).empty());
  CHECK_FALSE(output.deadline());
}

TEST_CASE("a log shows where a progress bar is, every ten seconds while it moves") {
  Pipes pipes;
  char folder[] = "/tmp/distrun-test-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  auto made = made_over(pipes, {.options = {.directory = folder}, .hosts = {"here"}});
  Output& output = *made;
  const TimePoint start = Clock::now();
  const auto after = [start](int second) { return TimePoint(start + std::chrono::seconds(second)); };
  const auto shown = [&](TimePoint now) {
    output.tick(now);
    flush(output);
    return pipes.read(1);
  };
  output.begin();
  output.write(bytes_of("Epoch 1\n\r 10%"), start);
  output.write(bytes_of("\r 20%"), after(8));
  CHECK(shown(after(9)) == "[0] Epoch 1\n");
  REQUIRE(output.deadline());
  CHECK(*output.deadline() == after(10));
  CHECK(shown(after(10)) == "[0]  20%\n");
  CHECK_FALSE(output.deadline());  // the progress does not change
  CHECK(shown(after(30)).empty());
  output.write(bytes_of("\r 30%\r 40%"), after(40));
  CHECK(*output.deadline() == after(50));
  output.write(bytes_of("\r 50%\n"), after(45));
  CHECK(shown(after(45)) == "[0]  50%\n");
  CHECK_FALSE(output.deadline());
  CHECK(output.last_lines().of(0) == std::vector<std::string>{"Epoch 1", " 50%"});
  output.finish_all();
  const TimePoint until = deadline_after(30);
  while (output.pending() && Clock::now() < until) {
    Poller poller;
    output.watch(poller);
    if (output.pending()) REQUIRE(poller.wait(until).ok());
  }
  const std::string files(folder);
  CHECK(test::slurp(files + "/rank.0.out") == "Epoch 1\n\r 10%\r 20%\r 30%\r 40%\r 50%\n");
  CHECK(test::slurp(files + "/merged.log") == "[0] Epoch 1\n[0]  20%\n[0]  50%\n");
  std::filesystem::remove_all(files);
}

TEST_CASE("a log shows the dots of a test runner soon") {
  Pipes pipes;
  auto made = made_over(pipes, {.hosts = {"here", "here"}});
  Output& output = *made;
  const TimePoint start = Clock::now();
  const auto after = [start](int ms) { return TimePoint(start + std::chrono::milliseconds(ms)); };
  const auto shown = [&](TimePoint now) {
    output.tick(now);
    flush(output);
    return pipes.read(1);
  };
  output.write(bytes_of("..."), start);
  CHECK(shown(after(900)).empty());
  CHECK(*output.deadline() == after(1000));
  CHECK(shown(after(1000)) == "[0] ...");
  output.write(bytes_of(".F"), after(1200));
  CHECK(shown(after(2200)) == ".F");
  StreamBytes other = bytes_of("a line\n");
  other.rank = 1;
  output.write(other, after(2300));
  CHECK(shown(after(2300)) == "\n[1] a line\n");
  // A line that others have broken is not cut into many.
  output.write(bytes_of("."), after(2400));
  CHECK(*output.deadline() == after(12400));
  output.write(bytes_of(".\n"), after(2500));
  CHECK(shown(after(2500)) == "[0] ..\n");
  CHECK(output.last_lines().of(0) == std::vector<std::string>{"....F.."});
}

TEST_CASE("bars above each other are thinned in a log") {
  Pipes pipes;
  auto made = made_over(pipes, {.hosts = {"here"}});
  Output& output = *made;
  const TimePoint start = Clock::now();
  const auto at = [start](int second) { return TimePoint(start + std::chrono::seconds(second)); };
  output.write(bytes_of("\repochs 0\n\rsteps 0\x1b[A"), start);
  for (int step = 1; step < 100; ++step) {
    output.write(bytes_of("\n\rsteps " + std::to_string(step) + "\x1b[A"), at(0));
  }
  output.tick(at(10));
  flush(output);
  CHECK(pipes.read(1) == "[0] epochs 0\n[0] steps 99\n");
  output.write(bytes_of("\repochs 1\n\n"), at(11));
  output.finish(0, at(12));
  flush(output);
  CHECK(pipes.read(1) == "[0] epochs 1\n[0] steps 99\n");
}

TEST_CASE("the last lines of a rank are those that came last, to whatever stream") {
  Pipes pipes;
  auto made = made_over(pipes, {.hosts = {"here"}});
  Output& output = *made;
  const TimePoint start = Clock::now();
  const auto write = [&](int second, std::uint8_t stream, const std::string& text) {
    output.write(line_at(second, stream, text), start + std::chrono::seconds(second));
  };
  CHECK(output.last_lines().of(0).empty());
  CHECK(output.last_lines().most_informative(0).empty());
  write(0, 1, "warning of an import");
  CHECK(output.last_lines().most_informative(0) == "warning of an import");
  write(1, 0, "step 1");
  CHECK(output.last_lines().of(0) == std::vector<std::string>{"warning of an import", "step 1"});
  for (int i = 2; i <= 30; ++i) write(i, 0, "step " + std::to_string(i));
  std::vector<std::string> lines = output.last_lines().of(0);
  REQUIRE(lines.size() == 20);
  CHECK(lines.front() == "step 11");
  CHECK(lines.back() == "step 30");
  CHECK(output.last_lines().most_informative(0) == "step 30");

  // A program that writes to a pipe may write buffered lines when it ends, after the reason for its end.
  write(40, 1, "fatal: bad input");
  for (int i = 0; i < 50; ++i) write(41, 0, "kept " + std::to_string(i));
  lines = output.last_lines().of(0);
  REQUIRE(lines.size() == 20);
  CHECK(lines.front() == "fatal: bad input");
  CHECK(lines.back() == "kept 49");
  CHECK(output.last_lines().most_informative(0) == "fatal: bad input");
}

TEST_CASE("a progress bar hides neither what ended its program nor what stands behind it") {
  Pipes pipes;
  auto made = made_over(pipes, {.hosts = {"here"}});
  Output& output = *made;
  const TimePoint start = Clock::now();
  const auto write = [&](int second, const std::string& text) {
    output.write(line_at(second, 1, text), start + std::chrono::seconds(second));
  };
  std::string bar;
  for (int i = 0; i < 100; ++i) bar += "\r" + std::string(50, '#') + " step " + std::to_string(i);
  write(0, bar + "Traceback:");
  write(0, "ValueError: bad");
  write(0, "");
  write(1, "\r step 100");
  CHECK(output.last_lines().of(0) ==
        std::vector<std::string>{std::string(50, '#') + " step 99Traceback:", "ValueError: bad", "", " step 100"});
  CHECK(output.last_lines().most_informative(0) == "ValueError: bad");
  write(60, "\r step 160");
  CHECK(output.last_lines().most_informative(0) == " step 160");
}

}  // namespace
}  // namespace distrun::launcher
