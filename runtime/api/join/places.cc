#include "runtime/api/join/places.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "runtime/api/join/exchange.h"
#include "runtime/net/bytes/wire.h"
#include "runtime/net/host/host_candidates.h"

namespace distrun::api {
namespace {
constexpr std::size_t kMaxPlaceText = 1024;
}

template <class V>
void fields(V& v, net::Ref<V, Place> place) {
  v.text(place.host, kMaxPlaceText).text(place.machine, kMaxPlaceText).text(place.reached, kMaxPlaceText);
}

Place own_place(int rank, std::string reached) {
  const std::string name = net::host_name();
  return {.host = name.empty() ? "localhost" : name, .machine = net::host_hint(rank), .reached = std::move(reached)};
}

void apply_places(net::World& world, const std::vector<Place>& places) {
  const auto self = static_cast<std::size_t>(world.rank);
  std::map<std::string, int> on_machine;
  std::vector<int> local;  // by rank
  for (const Place& place : places) local.push_back(on_machine[place.machine]++);
  world.host = places[self].host;
  world.local_rank = local[self];
  world.local_size = on_machine[places[self].machine];
  world.cross_rank = static_cast<int>(std::count(local.begin(), local.begin() + world.rank, local[self]));
  world.cross_size = static_cast<int>(std::count(local.begin(), local.end(), local[self]));
  world.address.clear();
  if (places[self].machine != places[0].machine) return;
  const auto found = std::find_if(places.begin(), places.end(),
                                  [&](const Place& place) { return place.machine != places[0].machine; });
  if (found != places.end()) world.address = found->reached;
}

Status exchange_places(net::World& world, net::Store& store, const Place& mine, TimePoint deadline) {
  Members all_ranks;
  all_ranks.ranks.resize(static_cast<std::size_t>(world.size));
  std::iota(all_ranks.ranks.begin(), all_ranks.ranks.end(), 0);
  all_ranks.index = world.rank;
  const auto blobs = exchange(store, all_ranks, "places", net::as_string(net::encoded(mine)), deadline);
  if (!blobs.ok()) return blobs.status();
  std::vector<Place> places;
  for (std::size_t rank = 0; rank < blobs->size(); ++rank) {
    auto place = net::decoded<Place>(net::as_bytes((*blobs)[rank]), "a rank's place");
    if (!place.ok()) return place.status().with_context("rank " + std::to_string(rank));
    places.push_back(*std::move(place));
  }
  apply_places(world, places);
  return {};
}

}  // namespace distrun::api
