// Signals as readable events: blocked for the process and taken from a descriptor, so that no handler ever runs.
#pragma once

#include <sys/signalfd.h>

#include <initializer_list>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

class SignalSource {
 public:
  // Blocks `numbers`. A signal that is ignored at the time (nohup) and listed in `keep_ignored` stays so.
  static Result<SignalSource> create(std::initializer_list<int> numbers, std::initializer_list<int> keep_ignored);
  [[nodiscard]] int fd() const { return fd_.get(); }
  std::vector<int> take();  // the numbers that have arrived

 private:
  Fd fd_;
};

// SIG_BLOCK or SIG_UNBLOCK for one signal.
void mask_signal(int how, int number);

// Stops this process, which has SIGTSTP blocked, as that does by default: not where nobody could let it go on, as under
// `ssh -t` without a shell or as process 1. Returns when it goes on.
void stop_as_asked();

struct Reaped {
  int pid = 0;
  int status = 0;  // as of waitpid
};
// All children that have ended so far; sets `none_left` when this process has no child at all.
std::vector<Reaped> reap_children(bool& none_left);

}  // namespace distrun::launcher
