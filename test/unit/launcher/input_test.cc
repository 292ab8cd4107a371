// Standard input that is the terminal of a job in the background.
#include "launcher/job/input.h"

#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "launcher/spawn/poller.h"
#include "runtime/base/fd.h"

namespace distrun::launcher {
namespace {

// Of a process in the background whose terminal has a line: true if it looks 0.5, 1, 2, 4, 5, 5, ... s later, and after
// a resume, as after SIGCONT, at once and then from 0.5 s on again.
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

// In a process group of its own, which the terminal does not belong to.
int code_in_background(bool (*job)()) {
  ::signal(SIGTTIN, SIG_IGN);
  const pid_t child = ::fork();
  if (child < 0) return 2;
  if (child == 0) ::_exit(::setpgid(0, 0) == 0 && job() ? 0 : 1);
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

TEST_CASE("a job in the background looks for its terminal ever more seldom") {
  int terminal = -1;
  const pid_t leader = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  REQUIRE(leader >= 0);
  if (leader == 0) ::_exit(code_in_background(looks_ever_more_seldom));
  const Fd owner(terminal);
  REQUIRE(::write(terminal, "typed\n", 6) == 6);
  int status = 0;
  REQUIRE(::waitpid(leader, &status, 0) == leader);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

}  // namespace
}  // namespace distrun::launcher
