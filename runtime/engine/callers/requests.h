// What callers ask of the engine besides running tensors: collective calls, leaving, going before the others, aborting.
// Any thread puts, the holder of the progress token takes.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/annotations.h"
#include "runtime/base/status.h"
#include "runtime/engine/monitoring/timeline_writer.h"
#include "runtime/engine/protocol/messages.h"

namespace distrun::engine {

// The outcome of one collective call; written once by the token holder.
class CallTicket {
 public:
  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] int set() const { return set_; }
  void finish(Status status, int set) {
    status_ = std::move(status);
    set_ = set;
    done_.store(true, std::memory_order_release);
  }

 private:
  Status status_;
  int set_ = -1;
  std::atomic<bool> done_{false};
};

struct Request {
  enum class Kind { kCall, kLeave, kGo, kAbort, kStop, kSay };
  Kind kind = Kind::kCall;
  Call call;  // kCall
  // kCall that starts one, at the leader: the caller has opened it, or could not.
  Result<TimelineWriterPtr> timeline = TimelineWriterPtr();
  std::shared_ptr<CallTicket> ticket;  // kCall kGo
  Status why;                          // kAbort
  std::string cause{};                 // kStop
  std::optional<Message> message{};    // kSay, to the leader
};

class Requests {
 public:
  void put(Request request) DISTRUN_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    list_.push_back(std::move(request));
    has_new_.store(true, std::memory_order_seq_cst);
  }
  [[nodiscard]] bool has_new() const { return has_new_.load(std::memory_order_seq_cst); }
  std::vector<Request> take() DISTRUN_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    has_new_.store(false, std::memory_order_relaxed);
    return std::exchange(list_, {});
  }

 private:
  Mutex mutex_;
  std::vector<Request> list_ DISTRUN_GUARDED_BY(mutex_);
  std::atomic<bool> has_new_{false};
};

}  // namespace distrun::engine
