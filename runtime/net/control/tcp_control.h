// The control plane between hosts: a star of authenticated connections to member 0. One descriptor in the wait set,
// whatever the number of members; a peer's death is its connection's end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/net/bytes/wait_set.h"
#include "runtime/net/control/control_plane.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/store.h"

namespace distrun::net {

struct TcpControlOptions {
  const World* world = nullptr;  // used during the call only, as key and store are
  const JobKey* key = nullptr;
  Store* store = nullptr;
  WaitSet* wait_set = nullptr;  // outlives the control plane
  TimePoint deadline;
  std::string name = "job";  // of the group; several groups over one store need several names
  std::vector<int> members;  // world ranks by member index; empty means all
  const Log* log = nullptr;  // told about strangers
};

// Collective over the members. Member 0 listens on the address by which this host reaches the launcher and puts it into
// the store. kTimeout names the members that did not come.
Result<std::unique_ptr<ControlPlane>> connect_tcp_control(const TcpControlOptions& options);

}  // namespace distrun::net
