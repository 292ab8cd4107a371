// Operations in flight: waits for one, for all or for any of several, and returns results.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "distrun/distrun.h"
#include "distrun/error.hpp"
#include "distrun/given_up.hpp"
#include "distrun/request.hpp"

namespace distrun {

namespace detail {

// Calls wait(seconds) of the C API until the operation is done or `seconds` are over in all. A signal does not end
// this, nor does a failure of the wait itself. If `done()` is false, the wait itself has failed.
template <class Wait, class Done>
std::int32_t wait_through(double seconds, const Wait& wait, const Done& done) {
  using Clock = std::chrono::steady_clock;
  const auto may_be_of_the_wait = [](std::int32_t code) {
    return code == DISTRUN_OUT_OF_MEMORY || code == DISTRUN_INTERNAL;
  };
  const auto start = Clock::now();
  double left = seconds;
  std::int32_t code = wait(left);
  while (code == DISTRUN_INTERRUPTED || (left != 0 && may_be_of_the_wait(code) && !done())) {
    const double waited = std::chrono::duration<double>(Clock::now() - start).count();
    left = seconds < 0 ? seconds : std::max(seconds - waited, 0.0);
    if (may_be_of_the_wait(code)) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // memory may become free
    code = wait(left);
  }
  // The operation may have its own result by now.
  return (may_be_of_the_wait(code) || code == DISTRUN_TIMEOUT) && done() ? wait(0.0) : code;
}

}  // namespace detail

// One operation in flight. Its memory must stay valid until wait() has returned. If wait() throws, the operation may
// still be running: its memory must then stay valid until done() is true. A wait() without a limit throws only after
// the operation is done.
//
// The destructor also waits, without a limit, so that an exception does not free memory in use. Declare the memory
// before the operation. An operation counts as given up while it is in flight after its last wait() timed out. This
// holds for the thread that waited and for the thread that submitted it. If an exception destroys an operation, and
// this one or another one of the calling thread was given up, the destructor aborts the job before it waits. Otherwise
// the exception would wait for peers that may never come. To continue after a wait with a limit, catch its Error inside
// the operations' scope, or use wait_for().
//
// Threads: several threads may call wait(), wait_for() and done() at once. All other calls need one thread at a time.
// When it is destroyed, no other thread may be inside a call.
class Operation {
 public:
  Operation() = default;  // no operation
  // Takes ownership of the handle. values() can check its type only if dtype and device are given.
  explicit Operation(distrun_handle* handle) noexcept : handle_(handle) {}
  Operation(distrun_handle* handle, std::int32_t dtype, std::int32_t device_type) noexcept
      : handle_(handle), dtype_(dtype), device_type_(device_type) {}
  Operation(Operation&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)),
        dtype_(other.dtype_),
        device_type_(other.device_type_),
        given_up_(std::move(other.given_up_)) {}
  Operation& operator=(Operation&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(dtype_, other.dtype_);
    std::swap(device_type_, other.device_type_);
    std::swap(given_up_, other.given_up_);
    return *this;
  }
  ~Operation() {
    if (in_flight()) {
      if (given_up_.may_be_what_passes()) {
        (void)distrun_abort(distrun_current(), "an exception after the time limit of a wait for an operation");
      }
      (void)code_of_wait(-1.0);
    }
    given_up_.clear();
    distrun_release(handle_);
  }

  // Waits at most `seconds` in all (negative: no limit). Throws the operation's own failure, or DISTRUN_TIMEOUT after
  // the limit. A signal does not end the wait, nor does a failure of the wait itself.
  void wait(double seconds = -1.0) { give_up_after(code_of_wait(seconds)); }
  // The same for repeated waits. Returns false after the limit, and the operation does not count as given up.
  [[nodiscard]] bool wait_for(double seconds) {
    std::int32_t code = code_of_wait(seconds);
    if (code == DISTRUN_TIMEOUT) {
      if (in_flight()) return false;
      code = distrun_wait(handle_, 0.0);  // it is done since then, or this is its own failure
    }
    give_up_after(code);
    return true;
  }
  [[nodiscard]] bool done() const { return distrun_poll(handle_) == 1; }

  // The methods below need a completed operation. They throw its failure if it has failed.

  // Valid as long as this object.
  [[nodiscard]] distrun_result result() const {
    distrun_result result = {};
    result.struct_size = sizeof(result);
    detail::check(distrun_get_result(handle_, &result));
    return result;
  }
  // The output: the request's own memory. For an allgather or alltoall it is memory of this object on the input's
  // device. GPU work that reads it must end before this object is destroyed.
  [[nodiscard]] const void* data() const { return result().data; }
  // The output's size in bytes.
  [[nodiscard]] std::size_t bytes() const { return result().bytes; }
  // The output's shape.
  [[nodiscard]] std::vector<std::int64_t> shape() const {
    const distrun_result found = result();
    return {found.shape, found.shape + found.ndim};
  }
  // For an allgather: the rows of each member, in member order. For an alltoall: the rows received from each member.
  // For a join: one value, the rank that joined last.
  [[nodiscard]] std::vector<std::int64_t> rows() const {
    const distrun_result found = result();
    return {found.first_dims, found.first_dims + found.num_members};
  }
  // Returns a copy of the output. Throws DISTRUN_INVALID_ARGUMENT if the output is on a GPU or has another element
  // type.
  template <class T>
  [[nodiscard]] std::vector<T> values() const {
    if (device_type_ > 0) detail::refuse("the output is on a GPU. Copy it from data()", "");
    if (dtype_ >= 0 && dtype_ != ElementType<T>::value) {
      detail::refuse("the output has dtype " + std::to_string(dtype_) + " (distrun_dtype), not " +
                         std::to_string(ElementType<T>::value) + ". Use values<T>() with the type of the request",
                     "");
    }
    const distrun_result found = result();
    const T* all = static_cast<const T*>(found.data);
    return std::vector<T>(all, all + found.bytes / sizeof(T));  // no braces: two pointers would be a list of two bools
  }
  // The failure of the operation, as wait() throws it. Empty if it has not failed.
  [[nodiscard]] std::optional<Error> failure() const {
    distrun_error error = {};
    error.struct_size = sizeof(error);
    detail::check(distrun_get_error(handle_, &error));
    return error.code == DISTRUN_OK ? std::nullopt : std::optional<Error>(error);
  }

  // For the C API. This object keeps it. Null if there is no operation.
  [[nodiscard]] distrun_handle* get() const noexcept { return handle_; }

 private:
  friend void wait_all(std::vector<Operation>& operations, double seconds);
  friend std::size_t wait_any(std::vector<Operation>& operations, double seconds);

  [[nodiscard]] bool in_flight() const { return handle_ != nullptr && !done(); }
  void give_up_after(std::int32_t code) {
    if (code != DISTRUN_OK && in_flight()) given_up_.mark(handle_);
    detail::check(code);
  }
  // A new wait means that the operation is not given up any more.
  std::int32_t code_of_wait(double seconds) {
    given_up_.clear();
    return detail::wait_through(
        seconds, [this](double left) { return distrun_wait(handle_, left); }, [this] { return done(); });
  }

  distrun_handle* handle_ = nullptr;
  std::int32_t dtype_ = -1;  // -1: unknown; the same for device_type_
  std::int32_t device_type_ = -1;
  detail::GivenUp given_up_;
};

// Waits for all operations, at most `seconds` in all (negative: no limit). Skips empty ones. When all are done, throws
// the failure of the first one that failed. After the limit it throws DISTRUN_TIMEOUT, and the operations still in
// flight count as given up.
inline void wait_all(std::vector<Operation>& operations, double seconds = -1.0) {
  std::vector<distrun_handle*> handles;
  handles.reserve(operations.size());
  for (Operation& operation : operations) {
    if (operation.handle_ == nullptr) continue;
    operation.given_up_.clear();
    handles.push_back(operation.handle_);
  }
  const auto unfinished = [](const Operation& one) { return one.in_flight(); };
  const std::int32_t code = detail::wait_through(
      seconds, [&handles](double left) { return distrun_wait_all(handles.data(), handles.size(), left, nullptr); },
      [&] { return std::none_of(operations.begin(), operations.end(), unfinished); });
  if (code == DISTRUN_OK) return;
  for (Operation& operation : operations) {
    if (unfinished(operation)) operation.given_up_.mark(operation.handle_);
  }
  detail::check(code);
}

// Returns the index of an operation that is done, failed or not; call wait() on it to see which. Waits at most
// `seconds` (negative: no limit). On DISTRUN_TIMEOUT all operations count as given up. Skips empty ones: set an
// operation to Operation() to get another index next time. Throws DISTRUN_INVALID_ARGUMENT if all are empty.
[[nodiscard]] inline std::size_t wait_any(std::vector<Operation>& operations, double seconds = -1.0) {
  std::vector<distrun_handle*> handles;
  handles.reserve(operations.size());
  for (Operation& operation : operations) {
    operation.given_up_.clear();
    handles.push_back(operation.handle_);
  }
  std::uint64_t place = 0;
  const std::int32_t code = detail::wait_through(
      seconds, [&](double left) { return distrun_wait_any(handles.data(), handles.size(), left, &place); },
      [&] { return place < handles.size(); });
  if (place < handles.size()) return place;
  for (Operation& operation : operations) {
    if (operation.handle_ != nullptr) operation.given_up_.mark(operation.handle_);
  }
  detail::check(code);
  return place;
}

}  // namespace distrun
