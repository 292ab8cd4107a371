// What the ranks of a job tell each other first: who they are, and whose settings count.
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
  std::vector<std::string> hosts;     // by world rank
  std::vector<std::string> warnings;  // settings of this rank that rank 0's replaced; at rank 0 hosts of another build
};

// Collective over the job. Checks that all ranks run one version of distrun (kProtocol naming both otherwise) and gives
// every rank rank 0's job-wide settings, in place.
Result<Membership> agree_on_membership(net::Store& store, const net::World& world, Settings& settings,
                                       TimePoint deadline, std::string_view build = build_id());

// For rank 0: the hosts on which several ranks run and share no memory, with the first reason; empty where there is
// none. By world rank: the host, and why this rank shares no memory with others of its host.
std::string unshared_hosts(const std::vector<std::string>& hosts, const std::vector<std::string>& reasons);

}  // namespace distrun::api
