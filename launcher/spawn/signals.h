// Signals as readable events. They are blocked for the process and read from a descriptor, so no handler ever runs.
#pragma once

#include <sys/signalfd.h>

#include <initializer_list>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

class SignalSource {
 public:
  // Blocks `numbers`. A signal in `keep_ignored` that is ignored at this time (nohup) stays ignored.
  static Result<SignalSource> create(std::initializer_list<int> numbers, std::initializer_list<int> keep_ignored);
  [[nodiscard]] int fd() const { return fd_.get(); }
  std::vector<int> take();  // the numbers that have arrived

 private:
  Fd fd_;
};

// SIG_BLOCK or SIG_UNBLOCK for one signal.
void mask_signal(int how, int number);

// Stops this process, which has SIGTSTP blocked, as the default action of SIGTSTP would. It does not stop if no process
// could continue it, as under `ssh -t` without a shell or as process 1. Returns when it is continued.
void stop_as_asked();

struct Reaped {
  int pid = 0;
  int status = 0;  // as of waitpid
};
// All children that have ended so far; sets `none_left` when this process has no child at all.
std::vector<Reaped> reap_children(bool& none_left);

}  // namespace distrun::launcher
