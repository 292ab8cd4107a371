// The rank that has the user's terminal. Standard input is a terminal of the test, or not a terminal.
#include "launcher/job/terminal_rank.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "test/unit/launcher/job/job_parts.h"

namespace distrun::launcher {
namespace {

// Makes `fd` standard input while this object lives.
class StandardInput {
 public:
  explicit StandardInput(int fd) : saved_(::fcntl(0, F_DUPFD_CLOEXEC, 3)) { REQUIRE(::dup2(fd, 0) == 0); }
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;
  ~StandardInput() { ::dup2(saved_.get(), 0); }

 private:
  Fd saved_;
};

struct OneAgent {
  OneAgent() {
    link.handle = *spawner.start("a", "");
    terminal.open(link);
    frames = spawner.sent_to("a");
  }
  FakeSpawner spawner;
  AgentLink link{.host = "a"};
  TerminalRank terminal;
  std::vector<Frame> frames;
};

TEST_CASE("the rank's agent hears how large the user's terminal is", "[terminal_rank]") {
  winsize size{.ws_row = 24, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
  int master = -1;
  int slave = -1;
  REQUIRE(::openpty(&master, &slave, nullptr, nullptr, &size) == 0);
  const Fd kept(master);
  const Fd terminal(slave);
  const StandardInput input(slave);
  OneAgent job;
  REQUIRE(job.frames.size() == 1);
  CHECK(job.frames[0].type == static_cast<std::uint8_t>(ToAgent::kWindow));
  CHECK(decode<Window>(job.frames[0].payload)->rows == 24);
  CHECK(decode<Window>(job.frames[0].payload)->columns == 100);
  size.ws_row = 50;
  REQUIRE(::ioctl(slave, TIOCSWINSZ, &size) == 0);
  job.terminal.send_window();
  CHECK(decode<Window>(job.spawner.sent_to("a").at(0).payload)->rows == 50);
}

TEST_CASE("without a terminal there is nothing to tell", "[terminal_rank]") {
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const StandardInput input(null.get());
  OneAgent job;
  CHECK(job.frames.empty());
  job.terminal.leave();
}

TEST_CASE("a job without such a rank tells nobody", "[terminal_rank]") {
  TerminalRank terminal;
  terminal.enter();
  terminal.send_window();
  terminal.leave();
}

}  // namespace
}  // namespace distrun::launcher
