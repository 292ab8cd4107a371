// The first exchange between the ranks of a job: their hosts and versions, and rank 0's settings, which all use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/join/build_id.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/store.h"

namespace distrun {
struct Settings;
}

namespace distrun::api {

struct Membership {
  std::vector<std::string> hosts;  // by world rank
  // this rank's settings that rank 0's replaced; on rank 0, hosts with another build
  std::vector<std::string> warnings;
};

// Collective over the job. Checks that all ranks run one version of distrun; otherwise kProtocol, with both versions.
// Replaces every rank's job-wide settings with rank 0's, in place.
Result<Membership> agree_on_membership(net::Store& store, const net::World& world, Settings& settings,
                                       TimePoint deadline, std::string_view build = build_id());

// For rank 0: the hosts with several ranks that share no memory, with the first reason. Empty: there are none. Both
// arguments by world rank: the host, and why the rank shares no memory with the other ranks of its host.
std::string unshared_hosts(const std::vector<std::string>& hosts, const std::vector<std::string>& reasons);

}  // namespace distrun::api
