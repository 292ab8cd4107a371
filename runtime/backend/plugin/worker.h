// The thread of a plug-in's group whose calls block, belong to one thread, or must be repeated to make progress.
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
  // `group` is not owned and outlives the worker, which creates and destroys it on its thread.
  explicit Worker(PluginGroup& group) : group_(group) {}
  ~Worker();  // ends the thread; abort the group first if operations are in flight
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Status create(TimePoint deadline);  // once, first; an error leaves no thread behind
  // `operation` lives until the token is complete. A refusal of the plug-in becomes the token's result.
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
  Fd bell_;  // eventfd: rung after every change below
  Mutex mutex_;
  std::deque<Command> commands_ DISTRUN_GUARDED_BY(mutex_);
  bool stop_ DISTRUN_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

}  // namespace distrun::backend::plugin
