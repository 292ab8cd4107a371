#include "launcher/spawn/signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace distrun::launcher {

Result<SignalSource> SignalSource::create(std::initializer_list<int> numbers, std::initializer_list<int> keep_ignored) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : numbers) {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    const bool may_stay = std::find(keep_ignored.begin(), keep_ignored.end(), number) != keep_ignored.end();
    if (may_stay && now.sa_handler == SIG_IGN) continue;
    // If SIGCHLD was inherited as ignored, the kernel would reap our children before we do.
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    ::sigaction(number, &usual, nullptr);
    ::sigaddset(&set, number);
  }
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return errno_status("block signals", errno);
  SignalSource out;
  out.fd_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!out.fd_.valid()) return errno_status("signalfd", errno);
  return out;
}

std::vector<int> SignalSource::take() {
  std::vector<int> out;
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    out.push_back(static_cast<int>(info.ssi_signo));
  }
  return out;
}

void mask_signal(int how, int number) {
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, number);
  ::sigprocmask(how, &one, nullptr);
}

void stop_as_asked() {
  ::raise(SIGTSTP);
  mask_signal(SIG_UNBLOCK, SIGTSTP);  // the process stops here
  mask_signal(SIG_BLOCK, SIGTSTP);
}

std::vector<Reaped> reap_children(bool& none_left) {
  std::vector<Reaped> out;
  none_left = false;
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid > 0) {
      out.push_back({pid, status});
    } else if (pid < 0 && errno == EINTR) {
      continue;
    } else {
      none_left = pid < 0 && errno == ECHILD;
      return out;
    }
  }
}

}  // namespace distrun::launcher
