// The job's key of this process. The launcher hands it down in a descriptor that can be read once, so it is kept for a
// second init; that makes it process-wide, like the descriptor itself. Safe from any thread.
#pragma once

#include "runtime/base/environment.h"
#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"

namespace distrun::api {

// Before anything opens a descriptor, which would get the number of the key's where something has closed that.
Result<net::JobKey> process_key(const Environment& environment);

}  // namespace distrun::api
