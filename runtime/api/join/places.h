// Who is on whose host, where no launcher of ours has told: the ranks tell each other, and each works out its local
// and cross ranks from what all said.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/store.h"

namespace distrun::api {

struct Place {
  std::string host;     // as the host calls itself
  std::string machine;  // the same for two ranks exactly if they share a kernel and a network
  std::string reached;  // the address at which this rank reaches rank 0's host
};

// This rank's.
Place own_place(int rank, std::string reached);

// `places` by rank. Sets host, local and cross ranks, and the address of rank 0's host as the others reach it. Pure.
void settle(net::World& world, const std::vector<Place>& places);

// Collective over the job.
Status exchange_places(net::World& world, net::Store& store, const Place& mine, TimePoint deadline);

}  // namespace distrun::api
