// The job's key from a file, for agents that dial in and their head. (Defined in job_key.cc.)
#pragma once

#include <string>

#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"

namespace distrun::net {

// A regular file of this user with mode 0600 or stricter. `named`: by what it was given, for errors.
Result<JobKey> key_from_file(const std::string& path, const std::string& named);

}  // namespace distrun::net
