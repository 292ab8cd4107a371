// Requests of callers other than running tensors: collective calls, leaving, leaving before the others, aborting. Any
// thread adds requests; the holder of the progress token takes them.
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

// The outcome of one collective call. The token holder writes it once.
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
  enum class Kind { kCall, kLeave, kGo, kAbort, kStop, kSend };
  Kind kind = Kind::kCall;
  Call call;  // kCall
  // For a kCall that starts a timeline, on the leader: the file that the caller has opened, or why it could not.
  Result<TimelineWriterPtr> timeline = TimelineWriterPtr();
  std::shared_ptr<CallTicket> ticket;  // kCall kGo
  Status why;                          // kAbort
  std::string cause{};                 // kStop
  std::optional<Message> message{};    // kSend, to the leader
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
