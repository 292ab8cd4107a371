#include "bindings/tensorflow/signals.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace distrun::tensorflow {
namespace {

// Only the main thread uses it.
struct Kept {
  void* type = nullptr;
  void* value = nullptr;
  void* traceback = nullptr;
};
Kept kept;

bool is_main_thread() { return syscall(SYS_gettid) == getpid(); }

}  // namespace

PythonApi python;

bool handler_raised() {
  if (!is_main_thread() || python.check_signals == nullptr) return false;
  const int state = python.gil_ensure();
  const bool raised = python.check_signals() != 0;
  if (raised) python.fetch(&kept.type, &kept.value, &kept.traceback);
  python.gil_release(state);
  return raised;
}

void raise_kept() {
  const Kept taken = std::exchange(kept, {});
  if (taken.type != nullptr) python.restore(taken.type, taken.value, taken.traceback);
}

}  // namespace distrun::tensorflow
