// The libdistrun.so of this process, which the Python core has loaded already, and the session that is open in it.
//
// Threads: a framework's kernels run on any thread. They reach the session through a Lease; detach() waits for all of
// them and for what they have handed to the watch, so that the session can be freed afterwards, or says that it cannot.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "distrun/distrun.h"

namespace distrun::bridge {

#define DISTRUN_CORE_FUNCTIONS(X) \
  X(distrun_last_error)           \
  X(distrun_get_world)            \
  X(distrun_enqueue)              \
  X(distrun_wait_all)             \
  X(distrun_poll)                 \
  X(distrun_get_error)            \
  X(distrun_get_result)           \
  X(distrun_release)              \
  X(distrun_process_set_ranks)    \
  X(distrun_watch_open)           \
  X(distrun_watch_add)            \
  X(distrun_watch_next)           \
  X(distrun_watch_end)            \
  X(distrun_watch_close)

// Pointers to its functions: this library names no other, so that it cannot load a second copy.
struct CoreApi {
#define X(name) decltype(&::name) name = nullptr;
  DISTRUN_CORE_FUNCTIONS(X)
#undef X
};
extern CoreApi core;

// `library`: what dlopen returned to the Python core. Empty, or what is missing.
std::string resolve_core(void* library);

// What a front end hands to the watch: all its handles are complete when complete() is called, on a thread of ours,
// where nobody is left to take an exception.
class PendingOperation {
 public:
  PendingOperation() = default;
  PendingOperation(const PendingOperation&) = delete;
  PendingOperation& operator=(const PendingOperation&) = delete;
  virtual ~PendingOperation() = default;
  virtual void complete() noexcept = 0;  // frees itself
};

class Attachment {
 public:
  // Of the open session for one call; none when nothing is attached.
  class Lease {
   public:
    explicit Lease(Attachment& owner);  // with its mutex held
    Lease(Lease&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), session_(other.session_), watch_(other.watch_) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease();  // on the same thread
    [[nodiscard]] distrun_session* session() const { return session_; }
    // From here on another thread may complete the operation, and with it free it. `handles` may be the operation's
    // own: they are read before.
    void watch(const std::vector<distrun_handle*>& handles, PendingOperation* operation) const noexcept;

   private:
    // Both stay valid: what a lease may still use is not freed.
    Attachment* owner_;
    distrun_session* session_;
    distrun_watch* watch_;
  };

  // Python, at init and before the session is freed. attach: empty, or the reason. detach: false if some thread is
  // still inside a call, as the calling one is in a signal handler that runs in an operation: the session must not be
  // freed.
  std::string attach(distrun_session* session);
  bool detach();

  std::optional<Lease> lease();

  // "3" for the fourth unnamed operation of this kind on this set: equal on all ranks that run them in the same order.
  std::string next_number(const std::string& kind, std::int32_t process_set);
  // The members have joined, after different numbers of operations.
  void forget_numbers(std::int32_t process_set);

 private:
  std::string start_completer(distrun_watch* watch);
  void take_completions(distrun_watch* watch);

  std::mutex mutex_;
  std::condition_variable left_;
  distrun_session* session_ = nullptr;
  distrun_watch* watch_ = nullptr;
  bool detaching_ = false;
  int leases_ = 0;
  std::map<std::pair<std::string, std::int32_t>, std::uint64_t> numbers_;
  std::thread completer_;  // of who attaches and detaches
};

// Never destroyed: operations may be in flight when the process ends.
Attachment& attachment();

}  // namespace distrun::bridge
