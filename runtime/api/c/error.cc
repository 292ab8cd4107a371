#include "runtime/api/c/error.h"

#include <pthread.h>

#include <cstddef>

namespace distrun::api {
namespace {

// The last error has no destructor. exit() destroys the main thread's variables before static objects, and the
// destructor of a static distrun::Session may still store an error here.
Status& kept() {
  alignas(Status) thread_local std::byte room[sizeof(Status)];
  thread_local Status* const one = new (room) Status;
  return *one;
}

// Uses the destructor of a pthread key. It runs when a thread ends, after those of the thread's variables, and never at
// exit().
void empty_at_thread_end(Status& status) {
  struct Key {
    pthread_key_t number = 0;
    bool made = ::pthread_key_create(&number, [](void* one) { *static_cast<Status*>(one) = {}; }) == 0;
  };
  static const Key key;
  if (key.made) ::pthread_setspecific(key.number, &status);
}

// Allocated while there is memory. Never destroyed, for the same reason as above.
const Status& g_out_of_memory = *new Status(Errc::kOutOfMemory, "out of memory");

}  // namespace

std::int32_t report(const Status& status) {
  if (!status.ok()) {
    kept() = status;
    empty_at_thread_end(kept());
  }
  return static_cast<std::int32_t>(status.code());
}

std::int32_t report_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return report(g_out_of_memory);
  } catch (const std::exception& error) {
    try {
      return report({Errc::kInternal, std::string("a bug in distrun, please report it: ") + error.what()});
    } catch (const std::bad_alloc&) {
      return report(g_out_of_memory);
    }
  }
}

const Status& last_error() { return kept(); }

void fill_error(const Status& status, distrun_error* error) {
  distrun_error filled = {};
  filled.code = static_cast<std::int32_t>(status.code());
  filled.message = filled.tensor = filled.host = filled.cause = "";
  filled.usable = 1;
  if (!status.ok()) {
    const ErrorInfo& info = status.info();
    filled.message = info.message.c_str();
    filled.tensor = info.tensor.c_str();
    filled.host = info.host.c_str();
    filled.cause = info.cause.c_str();
    filled.ranks = info.ranks.data();
    filled.num_ranks = info.ranks.size();
    filled.usable = info.usable ? 1 : 0;
  }
  copy_sized(error, filled);
}

}  // namespace distrun::api
