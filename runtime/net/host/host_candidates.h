// Which ranks might share this rank's host: a cheap hint through the store (boot id and network namespace, since the
// set-up needs a unix socket that both can reach). Only the hand-over of memory proves it (host_setup.h).
#pragma once

#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/store.h"

namespace distrun::net {

struct HostCandidates {
  std::vector<int> ranks;  // world ranks, ascending; includes this rank
  std::string prefix;      // store keys of this set-up begin with it; the same for all ranks of the group
};

// This host's own name; empty where the system tells none.
std::string host_name();

// Two processes with the same hint probably share a kernel and a network namespace. Never empty.
std::string host_hint(int rank);

// Collective over all ranks of the job, any number of times in its life: every call has its own keys. Costs each rank a
// few requests plus one for each rank of its host.
Result<HostCandidates> find_candidates(const World& world, const std::string& hint, Store* store, TimePoint deadline);

}  // namespace distrun::net
