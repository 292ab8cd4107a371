// Finds the hosts: from -H, --hostfile, or the allocation that distrun was started in. Reads files and the names of
// this machine, nothing else. The parsers are in plan/.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/options.h"
#include "launcher/plan/hosts/hosts.h"
#include "runtime/base/environment.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

struct HostSource {
  std::vector<HostSlots> hosts;        // empty: this machine, with as many slots as ranks
  std::vector<std::string> own_names;  // all names and addresses of this machine
  std::string found;                   // a sentence about the allocation, or empty
  std::string left_out;                // a sentence about hosts with 0 slots, or empty
  // A sentence about a listed name that looks like this machine's but belongs to another machine; or empty.
  std::string elsewhere;
  std::string launch_with;                            // command that starts the agents; empty: ssh
  std::map<std::string, std::string> launch_with_of;  // per host, where the command differs
  std::string more_slots;                             // half a sentence on how to get more slots, or empty
};

// Returns kSystem if there is an allocation that cannot be used.
Result<HostSource> find_hosts(const Options& options, const Environment& environment);

// True for an allocation of several hosts, and for one that cannot be read: find_hosts() returns that error later.
bool in_allocation_of_several(const Environment& environment);

}  // namespace distrun::launcher
