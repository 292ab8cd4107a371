// Finds out which ranks share a host, if distrun did not start them. The ranks exchange their places, and each computes
// its local and cross ranks from all of them.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/store.h"

namespace distrun::api {

struct Place {
  std::string host;     // as the host names itself
  std::string machine;  // equal for two ranks if and only if they share a kernel and a network
  std::string reached;  // the address that this rank uses for rank 0's host
};

// Returns this rank's place.
Place own_place(int rank, std::string reached);

// `places`: by rank. Sets the host, the local and cross ranks, and the address that other hosts use for rank 0's host.
// Pure.
void apply_places(net::World& world, const std::vector<Place>& places);

// Collective over the job.
Status exchange_places(net::World& world, net::Store& store, const Place& mine, TimePoint deadline);

}  // namespace distrun::api
