#include "runtime/api/watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace distrun::api {

Status CompletionWatch::add(std::vector<engine::HandlePtr> handles, void* tag) {
  bool complete_already = false;
  {
    const MutexLock lock(mutex_);
    if (ended_) return {Errc::kShutDown, "the watch has ended, so nothing can be added"};
    pending_.push_back({.handles = std::move(handles), .tag = tag});
    complete_already = complete(pending_.back());
    added_.notify_one();
  }
  // For handles that complete later, the engine calls look() by itself.
  if (complete_already) engine_.check_again();
  return {};
}

void CompletionWatch::end() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    added_.notify_one();
  }
  engine_.check_again();
}

Status CompletionWatch::next(TimePoint deadline, void** tag) {
  for (;;) {
    DISTRUN_RETURN_IF_ERROR(wait_for_a_batch(deadline));
    const Status waited = engine_.wait_for([this] { return look(); }, deadline);
    if (take(tag)) return {};
    // Signals are handled by the program's main thread, not by this one.
    if (!waited.ok() && waited.code() != Errc::kInterrupted) return waited;
  }
}

bool CompletionWatch::complete(Batch& batch) {
  while (batch.done < batch.handles.size() && batch.handles[batch.done]->done()) ++batch.done;
  return batch.done == batch.handles.size();
}

bool CompletionWatch::look() {
  const MutexLock lock(mutex_);
  for (auto at = pending_.begin(); at != pending_.end();) {
    const auto here = at++;
    if (complete(*here)) ready_.splice(ready_.end(), pending_, here);
  }
  return !ready_.empty() || pending_.empty();
}

// A thread that waits in the engine keeps the engine's own thread out. So this one waits there only while operations
// are in flight.
Status CompletionWatch::wait_for_a_batch(TimePoint deadline) {
  const MutexLock lock(mutex_);
  while (pending_.empty() && ready_.empty()) {
    if (ended_) return {Errc::kShutDown, "the watch has ended"};
    // Always with a time limit: wait() without one needs a newer libstdc++ than the wheel may require.
    const TimePoint limit = std::min(deadline, Clock::now() + std::chrono::hours(1));
    if (added_.wait_until(mutex_, limit) == std::cv_status::timeout && limit == deadline) {
      return {Errc::kTimeout, "nothing was submitted within the time limit"};
    }
  }
  return {};
}

bool CompletionWatch::take(void** tag) {
  const MutexLock lock(mutex_);
  if (ready_.empty()) return false;
  *tag = ready_.front().tag;
  ready_.pop_front();
  return true;
}

}  // namespace distrun::api
