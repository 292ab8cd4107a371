// The job's key of this process. The launcher passes it in a descriptor that can be read only once. So it is kept for a
// second init, process-wide like the descriptor. Safe from any thread.
#pragma once

#include "runtime/base/environment.h"
#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"

namespace distrun::api {

// Call this before anything opens a descriptor. If the key's descriptor has been closed, a new one would get its
// number.
Result<net::JobKey> process_key(const Environment& environment);

}  // namespace distrun::api
