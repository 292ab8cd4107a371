// Asks the program's front end where its threads are, without blocking. Each question starts separate threads. A front
// end in Python needs the interpreter's lock, which C code may hold for any time.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "runtime/base/annotations.h"
#include "runtime/net/store/program_state.h"

namespace distrun::engine {

class ProgramProbe {
 public:
  // Fills in what it sees. It runs on a separate thread, even after this object is destroyed, so it must not use the
  // session.
  using Describe = std::function<void(net::ProgramState&)>;
  // Called on another thread.
  using Done = std::function<void(net::ProgramState)>;

  ProgramProbe() = default;
  ProgramProbe(const ProgramProbe&) = delete;
  ProgramProbe& operator=(const ProgramProbe&) = delete;
  // Waits until every question has been answered, for one second at most.
  ~ProgramProbe();

  // Any thread.
  void describe_by(Describe describe) DISTRUN_EXCLUDES(mutex_);
  // `known`: the engine's part of the answer. Its `wait` is used if there is no front end to answer. The answer comes
  // within about a second. It never comes if no more threads can be started.
  void ask(net::ProgramState known, Done done) DISTRUN_EXCLUDES(mutex_);

 private:
  struct Question;
  static net::ProgramState answer(net::ProgramState known, const std::shared_ptr<Question>& question);

  Mutex mutex_;
  std::shared_ptr<const Describe> describe_ DISTRUN_GUARDED_BY(mutex_);
  std::shared_ptr<Question> open_ DISTRUN_GUARDED_BY(mutex_);  // the last one given to the front end
  std::list<std::jthread> answering_ DISTRUN_GUARDED_BY(mutex_);
};

// The kernel function where the main thread waits, such as "futex_wait_queue". Empty: it runs, or the kernel does not
// say.
std::string kernel_place();

}  // namespace distrun::engine
