// The connections of a group: one for each pair of members, at a port of its own, proven before the first tensor. Gloo
// takes whoever comes first to a port, so where that was a stranger all members try again, at other ports.
#pragma once

#include <memory>

#include "runtime/backend/gloo/direct.h"
#include "runtime/backend/gloo/mesh.h"
#include "runtime/backend/gloo/sockets.h"
#include "runtime/backend/plugin/guest.h"

namespace distrun::backend::gloo_plugin {

struct Connections {
  std::shared_ptr<Mesh> mesh;
  Sockets sockets;
  std::unique_ptr<Direct> direct;  // null in a group of one
};

// Collective over the members: all have the connections, or all an error, by about the spec's time. On the group's
// thread; it has another one while it waits.
Result<Connections> connect_members(const distrun_backend_group_spec& spec, const plugin::Host& host);

}  // namespace distrun::backend::gloo_plugin
