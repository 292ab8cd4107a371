#include "runtime/api/process_key.h"

#include <mutex>
#include <optional>

namespace distrun::api {

Result<net::JobKey> process_key(const Environment& environment) {
  static std::mutex mutex;
  static std::optional<net::JobKey> kept;  // guarded by mutex; wiped by its destructor at exit
  const std::lock_guard lock(mutex);
  if (!kept) {
    auto key = net::JobKey::from_environment(environment);
    if (!key.ok()) return key.status();
    kept = *std::move(key);
  }
  return *kept;
}

}  // namespace distrun::api
