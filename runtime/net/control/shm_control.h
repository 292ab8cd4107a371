// The control plane if all ranks are on one host. The leader shares a pair of byte rings with each other member, in
// memory of the host link. No system calls while all ranks are awake.
#pragma once

#include <memory>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/control/control_plane.h"
#include "runtime/net/host/host_link.h"
#include "runtime/net/identity/world.h"

namespace distrun::net {

// Collective over all ranks of the world; they must be all ranks of the link. The member index is the world rank. The
// link must outlive the plane. lost() reports a member that is gone after everything it sent has been received.
Result<std::unique_ptr<ControlPlane>> connect_shm_control(HostLink& link, const World& world, TimePoint deadline);

}  // namespace distrun::net
