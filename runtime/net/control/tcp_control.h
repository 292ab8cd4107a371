// The control plane between hosts: a star of authenticated connections to member 0. It adds one descriptor to the wait
// set, for any number of members. The end of a connection shows the death of the peer.
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
  const World* world = nullptr;  // used during the call only, like key and store
  const JobKey* key = nullptr;
  Store* store = nullptr;
  WaitSet* wait_set = nullptr;  // must outlive the control plane
  TimePoint deadline;
  std::string name = "job";  // of the group; use a different name for each group of a store
  std::vector<int> members;  // world ranks by member index; empty: all ranks
  const Log* log = nullptr;  // logs strangers
};

// Collective over the members. Member 0 listens on the address through which its host reaches the launcher, and puts
// that address into the store. kTimeout names the members that did not connect.
Result<std::unique_ptr<ControlPlane>> connect_tcp_control(const TcpControlOptions& options);

}  // namespace distrun::net
