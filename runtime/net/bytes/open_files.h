// Descriptors by the hundred: one for each of a group's members.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace distrun::net {

// The process planned its soft limit on open files without these, so they come on top of it: the limit is raised by
// `count`, to the hard limit at most, and as many descriptors are returned, which keep the places until they are
// needed. A listener that runs out of descriptors leaves its peers waiting, so call this before anybody is told the
// address. kSystem with the cure if the places are not to be had; `need` begins that text, as "an alltoall needs ...".
Result<std::vector<Fd>> make_room(std::size_t count, const std::string& need);

}  // namespace distrun::net
