// Finds the ranks that may share this rank's host. The store gives a cheap hint: boot id and network namespace. (The
// set-up needs a unix socket that both ranks can reach.) Only the hand-over of memory proves it (host_setup.h).
#pragma once

#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/store.h"

namespace distrun::net {

struct HostCandidates {
  std::vector<int> ranks;  // world rank, ascending; includes this rank
  std::string prefix;      // the prefix of all store keys of this set-up; the same for all ranks of the group
};

// The name of this host; empty if the system has none.
std::string host_name();

// Two processes with the same hint probably share a kernel and a network namespace. Never empty.
std::string host_hint(int rank);

// Collective over all ranks of the job. The job may call it several times; each call uses new keys. It costs each rank
// a few requests, plus one for each rank of its host.
Result<HostCandidates> find_candidates(const World& world, const std::string& hint, Store* store, TimePoint deadline);

}  // namespace distrun::net
