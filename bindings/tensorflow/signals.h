// Python's signal handlers in a thread of Python's that waits inside a kernel.
#pragma once

namespace distrun::tensorflow {

// CPython's own functions, given by address: this library is not linked with it either.
struct PythonApi {
  int (*gil_ensure)() = nullptr;
  void (*gil_release)(int) = nullptr;
  int (*check_signals)() = nullptr;
  void (*fetch)(void** type, void** value, void** traceback) = nullptr;
  void (*restore)(void* type, void* value, void* traceback) = nullptr;
};
extern PythonApi python;

// Runs the handlers of signals that have come, where this thread is the one that may. True if one has raised; its
// exception is kept for raise_kept().
bool handler_raised();
// With the GIL: sets the kept exception, if there is one.
void raise_kept();

}  // namespace distrun::tensorflow
