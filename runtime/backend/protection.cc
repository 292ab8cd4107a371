#include "runtime/backend/protection.h"

#include <algorithm>

#include "runtime/base/settings.h"
#include "runtime/net/bytes/wire.h"

namespace distrun::backend {
namespace {

struct MemberPlace {
  bool aes = false;
  int host = -1;  // the lowest rank on its host
};

template <class V>
void fields(V& v, net::Ref<V, MemberPlace> place) {
  v(place.aes, place.host);
}

std::string packed(const std::vector<MemberPlace>& places) {
  net::WireWriter out;
  for (const MemberPlace& place : places) fields(out, place);
  return net::as_string(out);
}

Result<std::vector<MemberPlace>> unpacked(const std::string& bytes, std::size_t expected) {
  net::WireReader in(net::as_bytes(bytes));
  std::vector<MemberPlace> places(expected);
  for (MemberPlace& place : places) fields(in, place);
  DISTRUN_RETURN_IF_ERROR(in.finish("the members' ciphers"));
  return places;
}

// The first member collects the places and publishes them.
Result<std::vector<MemberPlace>> exchange_places(const std::string& step, const MemberPlace& mine,
                                                 const GroupSpec& group, net::Store& store, TimePoint deadline) {
  const std::size_t size = group.members.size();
  if (group.index > 0) {
    DISTRUN_RETURN_IF_ERROR(store.set(step + "/" + std::to_string(group.index), packed({mine})));
    const auto all = store.get(step + "/all", deadline);
    return all.ok() ? unpacked(*all, size) : Result<std::vector<MemberPlace>>(all.status());
  }
  std::vector<MemberPlace> places = {mine};
  for (std::size_t i = 1; i < size; ++i) {
    const auto blob = store.get(step + "/" + std::to_string(i), deadline);
    if (!blob.ok()) return blob.status().with_context("waiting for rank " + std::to_string(group.members[i]));
    const auto one = unpacked(*blob, 1);
    if (!one.ok()) return one.status();
    places.push_back(one->front());
  }
  DISTRUN_RETURN_IF_ERROR(store.set(step + "/all", packed(places)));
  return places;
}

}  // namespace

std::string asked_protection(const Services& services) {
  if (services.settings == nullptr || services.world->local_size == services.world->size) return {};
  return services.settings->encrypt ? "--encrypt" : services.settings->checksum ? "--checksum" : "";
}

std::vector<int> ranks_here(const GroupSpec& group, const Services& services) {
  const int self = group.members[static_cast<std::size_t>(group.index)];
  std::vector<int> here;
  for (const int rank : group.members) {
    const bool shared = services.host_link != nullptr && std::ranges::binary_search(services.host_link->ranks(), rank);
    if (shared || rank == self) here.push_back(rank);
  }
  return here;
}

std::optional<net::RecordSuite> Protection::between(std::size_t one, std::size_t other) const {
  return suite && hosts[one] != hosts[other] ? suite : std::nullopt;
}

Result<Protection> agree_on_protection(const std::string& step, const GroupSpec& group, const Services& services,
                                       TimePoint deadline) {
  if (group.members.size() == 1 || asked_protection(services).empty()) return Protection{};
  const MemberPlace mine{.aes = net::aes_available(), .host = ranks_here(group, services).front()};
  const auto places = exchange_places(step, mine, group, *services.store, deadline);
  if (!places.ok()) return places.status();
  Protection protection{.suite = net::RecordSuite{.encrypts = services.settings->encrypt,
                                                  .aes = std::ranges::all_of(*places, &MemberPlace::aes)},
                        .hosts = {}};
  for (const MemberPlace& place : *places) protection.hosts.push_back(place.host);
  return protection;
}

Result<DataLink> take_over(net::SecureSocket& socket, const std::optional<net::RecordSuite>& suite) {
  DataLink link;
  if (suite) link.records = std::make_unique<net::RecordLayer>(*suite, socket.exported_keys());
  Result<Fd> fd = socket.release_plain();
  if (!fd.ok()) return fd.status();
  link.fd = *std::move(fd);
  return link;
}

}  // namespace distrun::backend
