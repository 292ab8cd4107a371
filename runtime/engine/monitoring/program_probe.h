// Asks the program's front end where its threads are, without waiting for it: on threads that exist only for the
// question. A front end in Python needs the interpreter's lock, which C code may hold for as long as it likes.
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
  // Fills in what it sees. Called on a thread of its own, also after this object is gone: it must not use the session.
  using Describe = std::function<void(net::ProgramState&)>;
  // Called on another thread.
  using Done = std::function<void(net::ProgramState)>;

  ProgramProbe() = default;
  ProgramProbe(const ProgramProbe&) = delete;
  ProgramProbe& operator=(const ProgramProbe&) = delete;
  // Waits until every question has been answered: a second at most.
  ~ProgramProbe();

  // Any thread.
  void describe_by(Describe describe) DISTRUN_EXCLUDES(mutex_);
  // `known`: what the engine knows; its `wait` counts where no front end tells. The answer comes within a second or so,
  // and not at all where there can be no more threads.
  void ask(net::ProgramState known, Done done) DISTRUN_EXCLUDES(mutex_);

 private:
  struct Question;
  static net::ProgramState answer(net::ProgramState known, const std::shared_ptr<Question>& question);

  Mutex mutex_;
  std::shared_ptr<const Describe> describe_ DISTRUN_GUARDED_BY(mutex_);
  std::shared_ptr<Question> open_ DISTRUN_GUARDED_BY(mutex_);  // the last one that went to the front end
  std::list<std::jthread> answering_ DISTRUN_GUARDED_BY(mutex_);
};

// Where the kernel has the main thread: "futex_wait_queue"; empty: it runs, or that is not told.
std::string kernel_place();

}  // namespace distrun::engine
