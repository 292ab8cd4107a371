// The connections of a group: one for each pair of members, each at its own port, and authenticated before the first
// tensor. Gloo accepts the first process that connects to a port. If a foreign process came first, all members try
// again with other ports.
#pragma once

#include <memory>

#include "runtime/backend/gloo/direct.h"
#include "runtime/backend/gloo/mesh.h"
#include "runtime/backend/gloo/sockets.h"
#include "runtime/backend/plugin/plugin_side.h"

namespace distrun::backend::gloo_plugin {

struct Connections {
  std::shared_ptr<Mesh> mesh;
  Sockets sockets;
  std::unique_ptr<Direct> direct;  // null in a group of one
};

// Collective over the members: all get the connections, or all get an error, within about the spec's time. Call it on
// the group's thread. It uses a second thread while it waits.
Result<Connections> connect_members(const distrun_backend_group_spec& spec, const plugin::Host& host);

}  // namespace distrun::backend::gloo_plugin
