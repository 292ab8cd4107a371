// The control plane where all ranks are on one host: a pair of byte rings between the leader and each other member, in
// memory shared over the host link. No system call while everybody is awake.
#pragma once

#include <memory>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/control/control_plane.h"
#include "runtime/net/host/host_link.h"
#include "runtime/net/identity/world.h"

namespace distrun::net {

// Collective over all ranks of the world, which are all ranks of the link; member index = world rank. The link outlives
// the plane. A member that is gone is reported by lost() once everything it sent has been received.
Result<std::unique_ptr<ControlPlane>> connect_shm_control(HostLink& link, const World& world, TimePoint deadline);

}  // namespace distrun::net
