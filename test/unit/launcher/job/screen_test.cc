#include "launcher/job/screen.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <string>

namespace distrun::launcher {
namespace {

// Makes standard error a pipe that has no room until drain().
class FullPipe {
 public:
  FullPipe() : saved_(::fcntl(2, F_DUPFD_CLOEXEC, 3)) {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    reader_.reset(ends[0]);
    const Fd writer(ends[1]);
    const std::string filler(4096, 'x');
    while (::write(writer.get(), filler.data(), filler.size()) > 0) filled_ += filler.size();
    REQUIRE(::dup2(writer.get(), 2) == 2);
  }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;
  ~FullPipe() { restore(); }
  void restore() { ::dup2(saved_.get(), 2); }
  // The text that came after the filling.
  std::string drain() {
    std::string text(filled_ + 65536, '\0');
    const ssize_t size = ::read(reader_.get(), text.data(), text.size());
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    const std::size_t cut = std::min(filled_, text.size());
    filled_ -= cut;
    return text.substr(cut);
  }

 private:
  Fd saved_;
  Fd reader_;
  std::size_t filled_ = 0;
};

TEST_CASE("what the screen had not shown when the ranks became known is shown by its successor", "[screen]") {
  Screen screen;
  std::string shown;
  {
    FullPipe errors;
    REQUIRE(screen.open({}).ok());
    screen.print("before the ranks are known");
    REQUIRE(screen.open({}).ok());
    screen.print("afterwards");
    errors.restore();
    Poller poller;
    for (int round = 0; round < 1000 && shown.find("afterwards") == std::string::npos; ++round) {
      shown += errors.drain();
      poller.clear();
      screen->watch(poller);
      REQUIRE(poller.wait(Clock::now() + std::chrono::milliseconds(10)).ok());
      screen->tick(Clock::now());
    }
  }
  const std::size_t first = shown.find("before the ranks are known");
  const std::size_t second = shown.find("afterwards");
  REQUIRE(second != std::string::npos);
  CHECK(first < second);
}

}  // namespace
}  // namespace distrun::launcher
