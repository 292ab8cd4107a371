#include "runtime/api/join/process_key.h"

#include <optional>

#include "runtime/base/annotations.h"

namespace distrun::api {

Result<net::JobKey> process_key(const Environment& environment) {
  static Mutex mutex;
  static std::optional<net::JobKey> kept DISTRUN_GUARDED_BY(mutex);  // its destructor wipes it at exit
  const MutexLock lock(mutex);
  if (!kept) {
    auto key = net::JobKey::from_environment(environment);
    if (!key.ok()) return key.status();
    kept = *std::move(key);
  }
  return *kept;
}

}  // namespace distrun::api
