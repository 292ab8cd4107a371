#include "bindings/bridge/failures.h"

#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace distrun::bridge {
namespace {

constexpr std::size_t kKept = 1024;  // one step may have this many operations, each with its own text
constexpr const char* kNoMemory = "distrun: out of memory for an operation of this rank";
constexpr const char* kOwnBug = "a bug in distrun: an operation of this rank has thrown an exception. Please report it";

struct Failure {
  std::int32_t code = 0;
  std::string message;
  std::string tensor;
  std::string host;
  std::string cause;
  std::vector<std::int32_t> ranks;
  std::int32_t usable = 1;
};

struct Failures {
  std::mutex mutex;
  std::deque<Failure> newest_first;
  // The failure for "out of memory", which could not be stored then.
  const Failure no_memory = {.code = DISTRUN_OUT_OF_MEMORY, .message = kNoMemory};
};

Failures& failures() {
  static auto* const the_one = new Failures;  // kernels may fail while the process ends
  return *the_one;
}

void remember(const distrun_error& error) {
  Failure made{.code = error.code,
               .message = error.message,
               .tensor = error.tensor,
               .host = error.host,
               .cause = error.cause,
               .ranks = {error.ranks, error.ranks + error.num_ranks},
               .usable = error.usable};
  const std::lock_guard lock(failures().mutex);
  auto& newest_first = failures().newest_first;
  if (!newest_first.empty() && newest_first.front().message == made.message) return;
  newest_first.push_front(std::move(made));
  if (newest_first.size() > kKept) newest_first.pop_back();
}

bool find(std::string_view text, Failure& found) {
  const auto matches = [text](const Failure& one) { return text.find(one.message) != std::string_view::npos; };
  const std::lock_guard lock(failures().mutex);
  for (const Failure& one : failures().newest_first) {
    if (!matches(one)) continue;
    found = one;
    return true;
  }
  if (!matches(failures().no_memory)) return false;
  found = failures().no_memory;
  return true;
}

}  // namespace

void remember_failure(const distrun_error& error) noexcept {
  try {
    remember(error);
  } catch (const std::exception&) {
    return;
  }
}

distrun_error failure_of_exception() noexcept {
  auto error = DISTRUN_INIT(distrun_error);
  error.code = DISTRUN_INTERNAL;
  error.message = kOwnBug;
  error.tensor = error.host = error.cause = "";
  error.usable = 1;
  try {
    throw;
  } catch (const std::bad_alloc&) {
    error.code = DISTRUN_OUT_OF_MEMORY;
    error.message = kNoMemory;
  } catch (const std::exception&) {
    return error;
  }
  return error;
}

bool find_failure(std::string_view text, distrun_error& error) noexcept {
  thread_local Failure found;
  try {
    if (!find(text, found)) return false;
  } catch (const std::exception&) {
    return false;
  }
  error.code = found.code;
  error.message = found.message.c_str();
  error.tensor = found.tensor.c_str();
  error.host = found.host.c_str();
  error.cause = found.cause.c_str();
  error.ranks = found.ranks.data();
  error.num_ranks = found.ranks.size();
  error.usable = found.usable;
  return true;
}

}  // namespace distrun::bridge
