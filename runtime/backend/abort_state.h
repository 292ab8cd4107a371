// Whether and why a backend has been aborted. The only part of a backend that other threads may touch.
#pragma once

#include <atomic>

#include "runtime/base/annotations.h"
#include "runtime/base/status.h"

namespace distrun::backend {

class AbortState {
 public:
  // Thread-safe. The first cause is kept.
  void set(const Status& why) DISTRUN_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!why_.ok()) return;
    why_ = why;
    requested_.store(true, std::memory_order_release);
  }
  // Cheap enough to ask once per chunk.
  [[nodiscard]] bool requested() const { return requested_.load(std::memory_order_acquire); }
  // Ok if not aborted.
  [[nodiscard]] Status why() const DISTRUN_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return why_;
  }

 private:
  std::atomic<bool> requested_{false};
  mutable Mutex mutex_;
  Status why_ DISTRUN_GUARDED_BY(mutex_);
};

}  // namespace distrun::backend
