// Ranks as threads: n threads run one function, each with its own rank, in one process and one debugger. Only the main
// thread may use Catch2's macros. Inside a rank use EXPECT, EXPECT_EQ and EXPECT_OK, which throw.
#pragma once

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace distrun::test {

struct RanksOptions {
  double watchdog_seconds = 50;  // below ctest's 60, so that the watchdog's message is seen
  // The first rank that throws calls this once. It must wake whatever the other ranks wait for (FakeStore::fail, ...).
  std::function<void()> on_failure = {};
};

namespace detail {

// The state that the rank threads and the waiting main thread share.
class RanksState {
 public:
  explicit RanksState(int size) : running_(static_cast<std::size_t>(size), true), left_(size) {}

  // Returns true for the first rank that fails.
  bool finished(int rank, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    running_[static_cast<std::size_t>(rank)] = false;
    --left_;
    changed_.notify_all();
    if (!error || first_error_) return false;
    first_error_ = error;
    first_rank_ = rank;
    return true;
  }

  // A stuck thread cannot be ended from outside. The process therefore aborts here with a core dump instead of hanging.
  void wait_or_abort(TimePoint deadline) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_until(lock, deadline, [this] { return left_ == 0; })) return;
    std::string text = "run_ranks: still running after the watchdog's deadline: ranks";
    for (std::size_t rank = 0; rank < running_.size(); ++rank) {
      if (running_[rank]) text += " " + std::to_string(rank);
    }
    if (first_error_) text += "; before that " + describe();
    std::fprintf(stderr, "%s\n", text.c_str());
    std::abort();
  }

  void rethrow() {
    if (first_error_) throw std::runtime_error(describe());
  }

 private:
  std::string describe() const {
    const std::string prefix = "rank " + std::to_string(first_rank_) + ": ";
    try {
      std::rethrow_exception(first_error_);
    } catch (const std::exception& error) {
      return prefix + error.what();
    } catch (...) {
      return prefix + "an exception that is not a std::exception";
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> running_;
  int left_;
  std::exception_ptr first_error_;
  int first_rank_ = -1;
};

template <class T>
std::string shown(const T& value) {
  if constexpr (requires(std::ostringstream & stream) { stream << value; }) {
    std::ostringstream stream;
    stream << value;
    return stream.str();
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<long long>(value));
  } else {
    return "a value that cannot be printed";
  }
}

[[noreturn]] inline void expectation_failed(const std::string& text,
                                            SourceLocation where = ::distrun::SourceLocation::current()) {
  throw std::runtime_error(std::string(where.file) + ":" + std::to_string(where.line) + ": " + text);
}

template <class A, class B>
void expect_equal(const A& a, const B& b, const char* expression, SourceLocation where) {
  if (!(a == b)) expectation_failed(std::string(expression) + " (" + shown(a) + " against " + shown(b) + ")", where);
}

inline void expect_ok(const Status& status, const char* expression, SourceLocation where) {
  if (!status.ok()) expectation_failed(std::string(expression) + " is an error: " + status.message(), where);
}
template <class T>
void expect_ok(const Result<T>& result, const char* expression, SourceLocation where) {
  expect_ok(result.status(), expression, where);
}

}  // namespace detail

// Returns when fn(0) ... fn(n - 1) have all returned. Throws the first exception again, with the rank before its text.
inline void run_ranks(int n, const std::function<void(int)>& fn, const RanksOptions& options = {}) {
  detail::RanksState state(n);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([rank, &fn, &state, &options] {
      std::exception_ptr error;
      try {
        fn(rank);
      } catch (...) {
        error = std::current_exception();
      }
      if (state.finished(rank, error) && options.on_failure) options.on_failure();
    });
  }
  state.wait_or_abort(deadline_after(options.watchdog_seconds));
  threads.clear();
  state.rethrow();
}

}  // namespace distrun::test

#define EXPECT(expression)                                                                            \
  do {                                                                                                \
    if (!(expression)) ::distrun::test::detail::expectation_failed("EXPECT(" #expression ") failed"); \
  } while (false)
#define EXPECT_EQ(a, b) \
  ::distrun::test::detail::expect_equal((a), (b), "EXPECT_EQ(" #a ", " #b ")", ::distrun::SourceLocation::current())
#define EXPECT_OK(expression) \
  ::distrun::test::detail::expect_ok((expression), #expression, ::distrun::SourceLocation::current())
