// Reserves descriptors in large numbers, for instance one for each member of a group.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace distrun::net {

// Raises the soft limit on open files by `count`, at most to the hard limit, because the process chose its limit
// without these descriptors. Returns `count` descriptors that reserve the places until they are needed. A listener that
// runs out of descriptors makes its peers wait, so call this before you publish its address. If there is no room,
// returns kSystem with the cure. `need` is the beginning of that text, for instance "an alltoall needs ...".
Result<std::vector<Fd>> make_room(std::size_t count, const std::string& need);

}  // namespace distrun::net
