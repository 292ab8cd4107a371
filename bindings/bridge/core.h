// The libdistrun.so of this process, which the Python core has already loaded, and the open session.
//
// Threads: the kernels of a framework run on any thread. They reach the session through a Lease. detach() waits until
// all leases are gone and the watch has completed all operations, so that the session can be freed. If that takes too
// long, it says so.
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

// Pointers to its functions. This library links no function of libdistrun.so, so it cannot load a second copy.
struct CoreApi {
#define X(name) decltype(&::name) name = nullptr;
  DISTRUN_CORE_FUNCTIONS(X)
#undef X
};
extern CoreApi core;

// `library` is the result of dlopen in the Python core. Returns an empty text, or the missing functions.
std::string resolve_core(void* library);

// An operation that a front end gives to the watch. complete() is called when all its handles are complete. It runs on
// a thread of this library, and no caller could catch an exception there.
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
  // The open session, for one call. There is no lease if no session is attached.
  class Lease {
   public:
    explicit Lease(Attachment& owner);  // the caller holds its mutex
    Lease(Lease&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), session_(other.session_), watch_(other.watch_) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease();  // on the thread that took it
    [[nodiscard]] distrun_session* session() const { return session_; }
    // After this call another thread may complete the operation and so free it. `handles` may belong to the operation,
    // because they are read before.
    void watch(const std::vector<distrun_handle*>& handles, PendingOperation* operation) const noexcept;

   private:
    // Both stay valid: a session or watch that a lease may still use is not freed.
    Attachment* owner_;
    distrun_session* session_;
    distrun_watch* watch_;
  };

  // Python calls attach() at init, and detach() before it frees the session. attach() returns an empty text, or the
  // reason for a failure. detach() returns false if a thread is still inside a call; the session must then not be
  // freed. This happens if the calling thread is in a signal handler that runs inside an operation.
  std::string attach(distrun_session* session);
  bool detach();

  std::optional<Lease> lease();

  // "3" for the fourth unnamed operation of this kind on this set. The number is the same on all ranks that run these
  // operations in the same order.
  std::string next_number(const std::string& kind, std::int32_t process_set);
  // Restarts the numbers of a set after a join, because members then have different counts.
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
  std::thread completer_;  // used by the thread that attaches and detaches
};

// Never destroyed: operations may be in flight when the process ends.
Attachment& attachment();

}  // namespace distrun::bridge
