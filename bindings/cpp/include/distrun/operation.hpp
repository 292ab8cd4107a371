// Operations in flight: waiting for one, for all of several, for any, and what came of it.
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

// wait(seconds) of the C API until that is over, in all: neither a signal that arrives ends it, nor that waiting itself
// fails, which it has where `done()` says no.
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
    if (may_be_of_the_wait(code)) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // memory may come free
    code = wait(left);
  }
  // By now the operation may have a result of its own.
  return (may_be_of_the_wait(code) || code == DISTRUN_TIMEOUT) && done() ? wait(0.0) : code;
}

}  // namespace detail

// One operation in flight. The memory it was given must stay valid until wait() has returned, or done() is true where
// wait() has thrown: until then it still runs. A wait() without a limit throws only when it is done.
//
// The destructor waits too, without a limit, so that an exception that passes frees no memory in use: declare the
// memory first. An operation whose last wait() was over its limit counts as given up while it is in flight, for the
// thread that waited and for the one that submitted it. Where an exception passes and this operation was given up, or
// another one that counts for the calling thread, the destructor aborts the job before it waits, or that exception
// would wait for peers that may never come. To go on after a wait with a limit, catch its Error within the operations'
// scope, or use wait_for().
//
// Threads: wait(), wait_for() and done() on any, several at once; the rest one at a time. Where it is destroyed, no
// other thread may be inside a call.
class Operation {
 public:
  Operation() = default;  // none
  // Takes the handle over. With its dtype and device values() knows what it has.
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
        (void)distrun_abort(distrun_current(), "an exception after a wait for an operation that was over its limit");
      }
      (void)code_of_wait(-1.0);
    }
    given_up_.clear();
    distrun_release(handle_);
  }

  // Waits at most `seconds` in all (negative: no limit), and throws the operation's own failure, or DISTRUN_TIMEOUT
  // where the limit is over. Neither a signal that arrives ends the wait, nor that waiting itself fails.
  void wait(double seconds = -1.0) { give_up_after(code_of_wait(seconds)); }
  // The same for who asks again and again: false where the limit is over, which gives up nothing.
  [[nodiscard]] bool wait_for(double seconds) {
    std::int32_t code = code_of_wait(seconds);
    if (code == DISTRUN_TIMEOUT) {
      if (in_flight()) return false;
      code = distrun_wait(handle_, 0.0);  // done since the wait was over, or that is its own failure
    }
    give_up_after(code);
    return true;
  }
  [[nodiscard]] bool done() const { return distrun_poll(handle_) == 1; }

  // All that follows is of a completed operation, and throws its failure where it has failed.

  // Valid as long as this object.
  [[nodiscard]] distrun_result result() const {
    distrun_result result = {};
    result.struct_size = sizeof(result);
    detail::check(distrun_get_result(handle_, &result));
    return result;
  }
  // The output: the request's own, or, of an allgather or alltoall, memory of this object on the input's device. What
  // reads that on a GPU must have ended before this object does.
  [[nodiscard]] const void* data() const { return result().data; }
  // The output's size in bytes.
  [[nodiscard]] std::size_t bytes() const { return result().bytes; }
  // The output's shape.
  [[nodiscard]] std::vector<std::int64_t> shape() const {
    const distrun_result found = result();
    return {found.shape, found.shape + found.ndim};
  }
  // Of an allgather: the rows of each member, in member order. Of an alltoall: those received from each. Of a join: one
  // value, the rank that joined last.
  [[nodiscard]] std::vector<std::int64_t> rows() const {
    const distrun_result found = result();
    return {found.first_dims, found.first_dims + found.num_members};
  }
  // A copy of the output, which is on the host and has elements of this type: else DISTRUN_INVALID_ARGUMENT.
  template <class T>
  [[nodiscard]] std::vector<T> values() const {
    if (device_type_ > 0) detail::refuse("the output is on a GPU; copy it from there, data() is where it lies", "");
    if (dtype_ >= 0 && dtype_ != ElementType<T>::value) {
      detail::refuse("the output has dtype " + std::to_string(dtype_) + " (distrun_dtype), not " +
                         std::to_string(ElementType<T>::value) + "; ask for values<T>() of the request's own type",
                     "");
    }
    const distrun_result found = result();
    const T* all = static_cast<const T*>(found.data);
    return std::vector<T>(all, all + found.bytes / sizeof(T));  // no braces: two pointers are a list of two bools
  }
  // How it has failed, if it has: what wait() throws.
  [[nodiscard]] std::optional<Error> failure() const {
    distrun_error error = {};
    error.struct_size = sizeof(error);
    detail::check(distrun_get_error(handle_, &error));
    return error.code == DISTRUN_OK ? std::nullopt : std::optional<Error>(error);
  }

  // For the C API; stays this object's. Null for none.
  [[nodiscard]] distrun_handle* get() const noexcept { return handle_; }

 private:
  friend void wait_all(std::vector<Operation>& operations, double seconds);
  friend std::size_t wait_any(std::vector<Operation>& operations, double seconds);

  [[nodiscard]] bool in_flight() const { return handle_ != nullptr && !done(); }
  void give_up_after(std::int32_t code) {
    if (code != DISTRUN_OK && in_flight()) given_up_.mark(handle_);
    detail::check(code);
  }
  // Whoever waits has not given up.
  std::int32_t code_of_wait(double seconds) {
    given_up_.clear();
    return detail::wait_through(
        seconds, [this](double left) { return distrun_wait(handle_, left); }, [this] { return done(); });
  }

  distrun_handle* handle_ = nullptr;
  std::int32_t dtype_ = -1;  // -1: not known, as the next one
  std::int32_t device_type_ = -1;
  detail::GivenUp given_up_;
};

// Waits for all of them, at most `seconds` in all (negative: no limit), passing over those that are none. Throws the
// failure of the first that has failed, once all are done, or DISTRUN_TIMEOUT, which gives up those that are not.
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

// The place of one that is done, failed or not: wait() on it says which. Waits at most `seconds` (negative: no limit);
// DISTRUN_TIMEOUT gives up all. Those that are none are passed over: make it Operation() to be given another one next.
// DISTRUN_INVALID_ARGUMENT where all are none.
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
