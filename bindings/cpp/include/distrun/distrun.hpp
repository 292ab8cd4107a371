// distrun for C++17 and newer: a thin header over the C API (distrun.h has the full contract of every call).
// Errors are exceptions (distrun::Error); sessions and handles are move-only and free themselves.
#pragma once

#if __cplusplus < 201703L
#error "distrun.hpp needs C++17: compile with -std=c++17 or newer (CMake: target_compile_features(... cxx_std_17))"
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "distrun/distrun.h"

namespace distrun {

// A failed call. `code` is a distrun_code; `usable` is false when the job cannot go on.
class Error : public std::runtime_error {
 public:
  explicit Error(const distrun_error& error)
      : std::runtime_error(error.message),
        code(error.code),
        tensor(error.tensor),
        host(error.host),
        cause(error.cause),
        ranks(error.ranks, error.ranks + error.num_ranks),
        usable(error.usable != 0) {}
  int code;
  std::string tensor;
  std::string host;
  std::string cause;
  std::vector<int> ranks;
  bool usable;
};

namespace detail {

inline void check(std::int32_t code) {
  if (code == DISTRUN_OK) return;
  distrun_error error = {};
  error.struct_size = sizeof(error);
  distrun_last_error(&error);
  throw Error(error);
}

template <class T>
constexpr std::int32_t dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DISTRUN_FLOAT32;
  else if constexpr (std::is_same_v<T, double>)
    return DISTRUN_FLOAT64;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return DISTRUN_UINT8;
  else if constexpr (std::is_same_v<T, std::int8_t>)
    return DISTRUN_INT8;
  else if constexpr (std::is_same_v<T, std::int16_t>)
    return DISTRUN_INT16;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DISTRUN_INT32;
  else if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, long long>)  // on Linux the first is long
    return DISTRUN_INT64;
  else if constexpr (std::is_same_v<T, bool>)
    return DISTRUN_BOOL;
  else
    static_assert(sizeof(T) == 0, "distrun has no such element type");
}

}  // namespace detail

// One operation in flight. The memory it was given must stay valid until wait() has returned, or done() is true where
// wait() has thrown: until then it still runs. A wait() without a limit throws only when it is done.
// The destructor waits too, without a limit, so that an exception that passes frees no memory in use: declare the
// memory first. Where the last wait() of an operation that this thread still has was over its limit and an exception
// passes (its Error, say), the destructor, of another one too, aborts the job before, or that exception would wait for
// peers that may never come; to go on after a wait with a limit, catch its Error within the operations' scope.
class Operation {
 public:
  Operation() = default;
  explicit Operation(distrun_handle* handle) : handle_(handle) {}
  Operation(Operation&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), gave_up_(std::exchange(other.gave_up_, false)) {}
  Operation& operator=(Operation&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(gave_up_, other.gave_up_);
    return *this;
  }
  ~Operation() {
    if (handle_ != nullptr && !done()) {
      if (given_up().operations > 0 && std::uncaught_exceptions() > given_up().passing) {
        (void)distrun_abort(distrun_current(), "an exception after a wait for an operation that was over its limit");
      }
      (void)code_of_wait(-1.0);
    }
    set_gave_up(false);
    distrun_release(handle_);
  }

  // Waits at most `seconds` in all (negative: no limit). Neither a signal that arrives ends the wait, nor that waiting
  // itself fails.
  void wait(double seconds = -1.0) {
    const std::int32_t code = code_of_wait(seconds);
    set_gave_up(code != DISTRUN_OK && !done());
    detail::check(code);
  }
  [[nodiscard]] bool done() const { return distrun_poll(handle_) == 1; }
  // Of a completed allgather, alltoall or join; valid as long as this object.
  [[nodiscard]] distrun_result result() const {
    distrun_result result = {};
    result.struct_size = sizeof(result);
    detail::check(distrun_get_result(handle_, &result));
    return result;
  }

 private:
  static bool may_be_of_the_wait(std::int32_t code) {
    return code == DISTRUN_OUT_OF_MEMORY || code == DISTRUN_INTERNAL;
  }
  std::int32_t code_of_wait(double seconds) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    double left = seconds;
    std::int32_t code = distrun_wait(handle_, left);
    while (code == DISTRUN_INTERRUPTED || (left != 0 && may_be_of_the_wait(code) && !done())) {
      const double waited = std::chrono::duration<double>(Clock::now() - start).count();
      left = seconds < 0 ? seconds : std::max(seconds - waited, 0.0);
      if (may_be_of_the_wait(code)) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // memory may come free
      code = distrun_wait(handle_, left);
    }
    // By now the operation may have a result of its own.
    return may_be_of_the_wait(code) && done() ? distrun_wait(handle_, 0.0) : code;
  }

  // What the calling thread has given up and has still. An exception that was passing already is not the wait's.
  struct GivenUp {
    int operations = 0;
    int passing = 0;  // exceptions, when the last one was given up
  };
  static GivenUp& given_up() noexcept {
    static thread_local GivenUp here;
    return here;
  }
  void set_gave_up(bool now) noexcept {
    GivenUp& here = given_up();
    if (now) here.passing = std::uncaught_exceptions();
    // Not below 0: what another thread gave up may end here.
    here.operations = std::max(here.operations + (now ? 1 : 0) - (gave_up_ ? 1 : 0), 0);
    gave_up_ = now;
  }

  distrun_handle* handle_ = nullptr;
  bool gave_up_ = false;  // the last wait() was over its limit
};

// This process's membership in the job. Use one from any thread.
class Session {
 public:
  explicit Session(const std::vector<std::string>& settings = {}) {
    std::vector<const char*> texts;
    texts.reserve(settings.size());
    for (const std::string& setting : settings) texts.push_back(setting.c_str());
    distrun_options options = {};
    options.struct_size = sizeof(options);
    options.num_settings = static_cast<std::uint32_t>(texts.size());
    options.settings = texts.data();
    detail::check(distrun_init(&options, &session_));
  }
  Session(Session&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}
  Session& operator=(Session&&) = delete;
  // Leaves in good order; call shutdown() first where its errors matter.
  ~Session() {
    if (session_ == nullptr) return;
    leave();
    distrun_close(session_);
  }

  // True on all ranks from the same call on, once one was asked to stop; every rank calls it once per step.
  bool should_stop(bool request = false) {
    int32_t stop = 0;
    int32_t code = DISTRUN_INTERRUPTED;
    while (code == DISTRUN_INTERRUPTED) code = distrun_should_stop(session_, request ? 1 : 0, &stop);
    detail::check(code);
    return stop != 0;
  }
  // Waits for the other ranks, and throws the job's failure if there is one (distrun.h). A signal that arrives does not
  // end the wait.
  void shutdown() { detail::check(leave()); }
  [[nodiscard]] int rank() const { return world().rank; }
  [[nodiscard]] int size() const { return world().size; }
  [[nodiscard]] distrun_world world() const {
    distrun_world world = {};
    world.struct_size = sizeof(world);
    detail::check(distrun_get_world(session_, &world));
    return world;
  }

  // A process set, by its id: for the operations below. Called by all ranks, or with `members_only` by its members
  // alone (distrun.h).
  int add_process_set(const std::vector<std::int32_t>& ranks, bool members_only = false) {
    const auto add = members_only ? distrun_process_set_add_by_members : distrun_process_set_add;
    std::int32_t set = -1;
    detail::check(add(session_, ranks.data(), ranks.size(), &set));
    return set;
  }
  void remove_process_set(int process_set) { detail::check(distrun_process_set_remove(session_, process_set)); }
  [[nodiscard]] std::vector<std::int32_t> process_set_ranks(int process_set) const {
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(size()));
    std::uint64_t count = 0;
    detail::check(distrun_process_set_ranks(session_, process_set, ranks.data(), ranks.size(), &count));
    ranks.resize(count);
    return ranks;
  }

  // data[i] = reduction over all ranks of data[i]; in place.
  template <class T>
  Operation allreduce_async(const std::string& name, T* data, std::size_t count,
                            distrun_reduce reduce = DISTRUN_AVERAGE, int process_set = 0) {
    distrun_op op = make_op<T>(DISTRUN_ALLREDUCE, name, data, process_set);
    op.reduce = reduce;
    return submit(op, count);
  }
  template <class T>
  void allreduce(const std::string& name, T* data, std::size_t count, distrun_reduce reduce = DISTRUN_AVERAGE,
                 int process_set = 0) {
    allreduce_async(name, data, count, reduce, process_set).wait();
  }
  // The root's data on every rank; in place.
  template <class T>
  void broadcast(const std::string& name, T* data, std::size_t count, int root, int process_set = 0) {
    distrun_op op = make_op<T>(DISTRUN_BROADCAST, name, data, process_set);
    op.root = root;
    submit(op, count).wait();
  }
  // All ranks' elements in rank order; `count` may differ between ranks.
  template <class T>
  std::vector<T> allgather(const std::string& name, const T* data, std::size_t count, int process_set = 0) {
    distrun_op op = make_op<T>(DISTRUN_ALLGATHER, name, const_cast<T*>(data), process_set);
    op.output = nullptr;
    return gathered<T>(op, count);
  }
  // data[i] goes to the ranks in order: splits[r] elements to rank r, or equal shares. The others' blocks in rank
  // order.
  template <class T>
  std::vector<T> alltoall(const std::string& name, const T* data, std::size_t count,
                          const std::vector<std::int64_t>& splits = {}, int process_set = 0) {
    distrun_op op = make_op<T>(DISTRUN_ALLTOALL, name, const_cast<T*>(data), process_set);
    op.output = nullptr;
    op.splits = splits.data();
    op.num_splits = static_cast<std::uint32_t>(splits.size());
    return gathered<T>(op, count);
  }
  // This member's share of the reduction over n: count / n elements, one more on the first count % n members.
  template <class T>
  std::vector<T> reducescatter(const std::string& name, const T* data, std::size_t count,
                               distrun_reduce reduce = DISTRUN_AVERAGE, int process_set = 0) {
    const std::vector<std::int32_t> ranks = process_set_ranks(process_set);
    const auto place = static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    const std::size_t mine = count / ranks.size() + (place < count % ranks.size() ? 1 : 0);
    const std::unique_ptr<T[]> share(new T[mine]);  // a vector of bool has no elements to point at
    distrun_op op = make_op<T>(DISTRUN_REDUCESCATTER, name, const_cast<T*>(data), process_set);
    op.output = share.get();
    op.reduce = reduce;
    submit(op, count).wait();
    return std::vector<T>(share.get(), share.get() + mine);  // no braces: two pointers are a list of two bools
  }
  // For a rank that has run out of data (see distrun_op). The rank that joined last.
  int join(int process_set = 0) {
    const std::string name = "join";
    distrun_op op = make_op<std::uint8_t>(DISTRUN_JOIN, name, nullptr, process_set);
    Operation operation = submit(op, 0);
    operation.wait();
    return static_cast<int>(*operation.result().first_dims);
  }
  void barrier(int process_set = 0) {
    const std::string name = "barrier";
    distrun_op op = make_op<std::uint8_t>(DISTRUN_BARRIER, name, nullptr, process_set);
    submit(op, 0).wait();
  }
  [[nodiscard]] distrun_session* get() const { return session_; }

 private:
  std::int32_t leave() {
    std::int32_t code = DISTRUN_INTERRUPTED;
    while (code == DISTRUN_INTERRUPTED) code = distrun_shutdown(session_);
    return code;
  }
  // The op refers to `name`, which must outlive submit().
  template <class T>
  static distrun_op make_op(distrun_kind kind, const std::string& name, T* data, int process_set) {
    distrun_op op = {};
    op.struct_size = sizeof(op);
    op.kind = kind;
    op.name = name.c_str();
    op.dtype = detail::dtype_of<std::remove_const_t<T>>();
    op.input = data;
    op.output = data;
    op.prescale = op.postscale = 1.0;
    op.process_set = process_set;
    op.group = -1;
    return op;
  }
  // Runs an operation whose output the library makes.
  template <class T>
  std::vector<T> gathered(distrun_op& op, std::size_t count) {
    Operation operation = submit(op, count);
    operation.wait();
    const distrun_result result = operation.result();
    const T* all = static_cast<const T*>(result.data);
    return std::vector<T>(all, all + result.bytes / sizeof(T));
  }
  Operation submit(distrun_op& op, std::size_t count) {
    const std::int64_t shape[1] = {static_cast<std::int64_t>(count)};
    op.shape = shape;
    op.ndim = 1;
    distrun_handle* handle = nullptr;
    detail::check(distrun_enqueue(session_, &op, 1, &handle));
    return Operation(handle);
  }

  distrun_session* session_ = nullptr;
};

}  // namespace distrun
