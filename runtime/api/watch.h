// Reports which operations are complete, of those that many threads have submitted. One thread asks, and drives the
// engine while it waits (distrun_watch in distrun.h). Lock order: never take the engine's locks with mutex_ held.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <list>
#include <vector>

#include "runtime/base/annotations.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/engine.h"

namespace distrun::api {

class CompletionWatch {
 public:
  explicit CompletionWatch(engine::Engine& engine) : engine_(engine) {}

  // Any thread. kShutDown after end().
  Status add(std::vector<engine::HandlePtr> handles, void* tag) DISTRUN_EXCLUDES(mutex_);
  void end() DISTRUN_EXCLUDES(mutex_);
  // For one thread. kTimeout: the deadline passed. kShutDown: every batch is taken and end() was called.
  Status next(TimePoint deadline, void** tag) DISTRUN_EXCLUDES(mutex_);

 private:
  struct Batch {
    std::vector<engine::HandlePtr> handles;
    void* tag = nullptr;
    std::size_t done = 0;  // all handles before this one are done
  };

  static bool complete(Batch& batch);
  // True if `ready_` has a batch now, or there is nothing to wait for.
  bool look() DISTRUN_EXCLUDES(mutex_);
  Status wait_for_a_batch(TimePoint deadline) DISTRUN_EXCLUDES(mutex_);
  bool take(void** tag) DISTRUN_EXCLUDES(mutex_);

  engine::Engine& engine_;
  Mutex mutex_;
  std::condition_variable_any added_;
  std::list<Batch> pending_ DISTRUN_GUARDED_BY(mutex_);
  std::list<Batch> ready_ DISTRUN_GUARDED_BY(mutex_);
  bool ended_ DISTRUN_GUARDED_BY(mutex_) = false;
};

}  // namespace distrun::api
