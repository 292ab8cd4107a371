#include "bindings/bridge/failures.h"

#include <deque>
#include <mutex>

namespace distrun::bridge {
namespace {

constexpr std::size_t kKept = 16;

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
};

Failures& failures() {
  static auto* const the_one = new Failures;  // kernels may fail while the process ends
  return *the_one;
}

}  // namespace

void remember_failure(const distrun_error& error) {
  Failure made{.code = error.code,
               .message = error.message,
               .tensor = error.tensor,
               .host = error.host,
               .cause = error.cause,
               .ranks = {error.ranks, error.ranks + error.num_ranks},
               .usable = error.usable};
  const std::lock_guard lock(failures().mutex);
  failures().newest_first.push_front(std::move(made));
  if (failures().newest_first.size() > kKept) failures().newest_first.pop_back();
}

bool find_failure(const std::string& text, distrun_error& error) {
  thread_local Failure found;
  const std::lock_guard lock(failures().mutex);
  for (const Failure& one : failures().newest_first) {
    if (text.find(one.message) == std::string::npos) continue;
    found = one;
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
  return false;
}

}  // namespace distrun::bridge
