// Runs Python's signal handlers in a Python thread that waits inside a kernel.
#pragma once

namespace distrun::tensorflow {

// CPython functions, given by address, since this library is not linked with CPython either.
struct PythonApi {
  int (*gil_ensure)() = nullptr;
  void (*gil_release)(int) = nullptr;
  int (*check_signals)() = nullptr;
  void (*fetch)(void** type, void** value, void** traceback) = nullptr;
  void (*restore)(void* type, void* value, void* traceback) = nullptr;
};
extern PythonApi python;

// Runs the handlers of pending signals, if this is the thread that may run them. Returns true if one raised. Its
// exception is kept for raise_kept().
bool handler_raised();
// Needs the GIL. Sets the kept exception, if there is one.
void raise_kept();

}  // namespace distrun::tensorflow
