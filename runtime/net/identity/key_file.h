// Reads the job's key from a file, for agents that dial in and for their head. (Defined in job_key.cc.)
#pragma once

#include <string>

#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"

namespace distrun::net {

// The file must be a regular file of this user with mode 0600 or stricter. `named` is the option or variable that gave
// the path; errors name it.
Result<JobKey> key_from_file(const std::string& path, const std::string& named);

}  // namespace distrun::net
