// The thread that writes files: the cost for the head's loop if the disk is slow, stuck or full.
#include "launcher/report/file_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <string>
#include <thread>

#include "launcher/spawn/poller.h"
#include "test/support/stuck_disk.h"
#include "test/support/temporary_file.h"

namespace distrun::launcher {
namespace {

using Parts = std::vector<FileWriter::Part>;

std::unique_ptr<FileWriter> writer_of(const std::string& path, Duration retry = FileWriter::kRetry,
                                      FileWriter::Flush flush = &FileWriter::flush) {
  std::vector<Fd> files;
  files.emplace_back(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  REQUIRE(files.back().valid());
  auto writer = FileWriter::create(std::move(files), retry, flush);
  REQUIRE(writer.ok());
  return *std::move(writer);
}

// One round of a loop.
void round(FileWriter& writer, Parts& waiting, TimePoint until) {
  Poller poller;
  writer.look();
  if (!writer.busy()) writer.write(std::exchange(waiting, {}));
  writer.watch(poller);
  if (writer.busy()) REQUIRE(poller.wait(until).ok());
}

void write_and_wait(FileWriter& writer, const std::string& text) {
  Parts parts{{.text = text}};
  const TimePoint until = deadline_after(30);
  do round(writer, parts, until);
  while (writer.busy() && Clock::now() < until);
  REQUIRE_FALSE(writer.busy());
}

TEST_CASE("a stuck disk holds no loop, and what it takes late comes in order") {
  test::StuckDisk disk;
  auto writer = writer_of(disk.path());
  const TimePoint before = Clock::now();
  const std::string first(100'000, 'a');
  Parts waiting{{.text = first}, {.text = "b"}};
  round(*writer, waiting, before + std::chrono::milliseconds(50));
  CHECK(waiting.empty());
  CHECK(writer->busy());
  CHECK(writer->in_hand() == first.size() + 1);
  waiting = {{.text = "c"}};
  round(*writer, waiting, Clock::now());
  CHECK(Clock::now() - before < std::chrono::seconds(5));
  CHECK(waiting.size() == 1);  // one batch at a time

  std::string text;
  std::thread reader([&] { text = disk.read_all(); });
  const TimePoint until = deadline_after(30);
  while ((writer->busy() || !waiting.empty()) && Clock::now() < until) round(*writer, waiting, until);
  CHECK(writer->in_hand() == 0);
  CHECK(writer->taken() == first.size() + 2);
  writer.reset();
  reader.join();
  CHECK(text == first + "bc");
}

TEST_CASE("who leaves a writer whose disk is stuck does not wait for it") {
  const test::StuckDisk disk;
  auto writer = writer_of(disk.path());
  Parts waiting{{.text = std::string(100'000, 'a')}};
  round(*writer, waiting, Clock::now());
  const TimePoint before = Clock::now();
  writer.reset();
  CHECK(Clock::now() - before < std::chrono::seconds(5));
}

// A limit on the size of files. It acts like a disk that is full for some time.
class FullDisk {
 public:
  explicit FullDisk(rlim_t size) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = size, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

TEST_CASE("a disk that was full for a while goes on below a line that says what is missing") {
  const test::TemporaryFile file;
  constexpr Duration kRetry = std::chrono::milliseconds(200);
  auto writer = writer_of(file.path(), kRetry);
  write_and_wait(*writer, "one\n");
  TimePoint failed;
  {
    const FullDisk full(6);
    write_and_wait(*writer, "two\n");
    failed = Clock::now();
  }
  REQUIRE(writer->fault());
  CHECK(writer->fault()->error == EFBIG);
  write_and_wait(*writer, "three\n");  // too early for another try
  const bool early = Clock::now() < failed + kRetry / 2;
  std::this_thread::sleep_until(failed + kRetry);
  write_and_wait(*writer, "four\n");
  write_and_wait(*writer, "five\n");
  if (early)
    CHECK(file.text() == "one\ntw\ndistrun: 8 bytes are missing here: File too large (errno 27)\nfour\nfive\n");
  CHECK(writer->taken() ==
        4 + 4 + 6 + 5 + 5 + std::string("\ndistrun: 8 bytes are missing here: File too large (errno 27)\n").size());
}

TEST_CASE("what was dropped is told at the end, however soon that comes") {
  const test::TemporaryFile file;
  auto writer = writer_of(file.path());
  {
    const FullDisk full(2);
    write_and_wait(*writer, "one\n");
  }
  writer->finish();
  write_and_wait(*writer, "");
  CHECK(file.text() == "on\ndistrun: 2 bytes are missing here: File too large (errno 27)\n");
}

TEST_CASE("a quota that a file system tells of at the end only is a fault") {
  const test::TemporaryFile file;
  const auto over_quota = [](int) {
    errno = EDQUOT;
    return -1;
  };
  auto writer = writer_of(file.path(), FileWriter::kRetry, over_quota);
  write_and_wait(*writer, "one\n");
  CHECK_FALSE(writer->fault());
  writer->finish();
  write_and_wait(*writer, "");
  write_and_wait(*writer, "and what is said of it\n");
  REQUIRE(writer->fault());
  CHECK(writer->fault()->error == EDQUOT);
  CHECK(file.text() == "one\nand what is said of it\n");
}

TEST_CASE("a file is emptied before what comes next, and a pipe need not be") {
  const test::TemporaryFile file;
  auto writer = writer_of(file.path());
  write_and_wait(*writer, "of an earlier run\n");
  Parts parts{{.text = "new\n", .empty_first = true}};
  do round(*writer, parts, deadline_after(30));
  while (writer->busy());
  CHECK(file.text() == "new\n");
  const test::StuckDisk pipe;
  auto other = writer_of(pipe.path());
  parts = {{.text = "new\n", .empty_first = true}};
  do round(*other, parts, deadline_after(30));
  while (other->busy());
  CHECK_FALSE(other->fault());
}

}  // namespace
}  // namespace distrun::launcher
