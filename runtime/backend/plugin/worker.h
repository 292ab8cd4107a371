// The thread of a plug-in's group. Used if the plug-in's calls block, must all come from one thread, or must be
// repeated to make progress.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <utility>

#include "runtime/backend/plugin/plugin_group.h"
#include "runtime/base/annotations.h"
#include "runtime/base/fd.h"

namespace distrun::backend::plugin {

class Worker {
 public:
  // `group` is not owned and outlives the worker. The worker creates and destroys the group on its thread.
  explicit Worker(PluginGroup& group) : group_(group) {}
  ~Worker();  // ends the thread; if operations are in flight, abort the group first
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Status create(TimePoint deadline);  // call it once, before start(); after an error no thread is left
  // `operation` must live until the token is complete. If the plug-in refuses it, the token completes with that error.
  void start(const PluginOperation& operation, std::uint64_t token);

 private:
  struct Command {
    const PluginOperation* operation = nullptr;
    std::uint64_t token = 0;
  };

  void run();
  bool run_commands();
  void wait_for_something(int plugin_fd);
  void ring();

  PluginGroup& group_;
  Fd bell_;  // eventfd: written after every change of the members below
  Mutex mutex_;
  std::deque<Command> commands_ DISTRUN_GUARDED_BY(mutex_);
  bool stop_ DISTRUN_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

}  // namespace distrun::backend::plugin
