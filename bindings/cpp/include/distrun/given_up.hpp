// Operations that were given up: the last wait timed out, and they are still in flight. Not part of the API.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "distrun/distrun.h"

namespace distrun::detail {

// A member of every Operation. The marked ones of all threads form a list, which its mutex guards. The list allocates
// no memory, because the wait may have failed for lack of memory. Any thread may call mark() and clear(). Only the
// owner may move or destroy one, and no other thread may use it then.
class GivenUp {
 public:
  GivenUp() noexcept = default;
  GivenUp(GivenUp&& other) noexcept { take_place_of(other); }
  GivenUp& operator=(GivenUp&& other) noexcept {
    clear();
    take_place_of(other);
    return *this;
  }
  ~GivenUp() { clear(); }

  // The thread that waited calls this. An exception that is already propagating there does not come from the wait. The
  // handle must stay valid until clear().
  void mark(distrun_handle* handle) noexcept {
    const std::lock_guard<std::mutex> lock(list_mutex);
    handle_ = handle;
    waiter_ = this_thread();
    passing_ = std::uncaught_exceptions();
    link();
  }
  void clear() noexcept {
    if (!marked_.load(std::memory_order_acquire)) return;
    const std::lock_guard<std::mutex> lock(list_mutex);
    unlink();
  }

  // True if an exception propagates through this thread and may come from a wait that was given up. That may be a wait
  // for this operation, or for one that this thread waited for or submitted. (Another thread may have waited for it and
  // passed its Error on to this thread.)
  [[nodiscard]] bool may_be_what_passes() const noexcept {
    const int passing = std::uncaught_exceptions();
    if (passing == 0) return false;
    const std::uint64_t here = this_thread();
    const std::lock_guard<std::mutex> lock(list_mutex);
    for (const GivenUp* one = list_first; one != nullptr; one = one->next_) {
      const bool counts_here = one->waiter_ == here ? passing > one->passing_ : one == this || one->submitter_ == here;
      if (counts_here && distrun_poll(one->handle_) == 0) return true;
    }
    return false;
  }

 private:
  // Unlike a std::thread::id, a later thread never gets the same number.
  static std::uint64_t this_thread() noexcept {
    static std::atomic<std::uint64_t> threads{0};
    static thread_local const std::uint64_t mine = threads.fetch_add(1, std::memory_order_relaxed) + 1;
    return mine;
  }
  void take_place_of(GivenUp& other) noexcept {
    submitter_ = other.submitter_;
    if (!other.marked_.load(std::memory_order_acquire)) return;
    const std::lock_guard<std::mutex> lock(list_mutex);
    handle_ = other.handle_;
    waiter_ = other.waiter_;
    passing_ = other.passing_;
    other.unlink();
    link();
  }
  void link() noexcept {
    if (marked_.exchange(true, std::memory_order_acq_rel)) return;
    next_ = list_first;
    link_ = &list_first;
    if (next_ != nullptr) next_->link_ = &next_;
    list_first = this;
  }
  void unlink() noexcept {
    if (!marked_.exchange(false, std::memory_order_acq_rel)) return;
    *link_ = next_;
    if (next_ != nullptr) next_->link_ = link_;
  }

  static inline std::mutex list_mutex;
  static inline GivenUp* list_first = nullptr;  // guarded by list_mutex, as are the members below except submitter_

  std::uint64_t submitter_ = this_thread();
  distrun_handle* handle_ = nullptr;
  std::uint64_t waiter_ = 0;
  int passing_ = 0;  // exceptions propagating in the waiter at mark()
  GivenUp* next_ = nullptr;
  GivenUp** link_ = nullptr;  // the pointer to this one
  std::atomic<bool> marked_{false};
};

}  // namespace distrun::detail
