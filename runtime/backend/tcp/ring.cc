#include "runtime/backend/tcp/ring.h"

#include <memory>
#include <string>
#include <utility>

#include "runtime/backend/agree.h"
#include "runtime/net/bytes/open_files.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::backend::tcp {
namespace {

// Two connections that stay, and three descriptors that the listener needs during the set-up.
constexpr std::size_t kFiles = 5;

struct Position {
  const GroupSpec& group;
  const Services& services;
  TimePoint deadline;
  const Protection& protection;

  [[nodiscard]] std::size_t size() const { return group.members.size(); }
  [[nodiscard]] std::size_t index() const { return static_cast<std::size_t>(group.index); }
  [[nodiscard]] int member(std::size_t i) const { return group.members[i % size()]; }
  [[nodiscard]] int me() const { return member(index()); }
  [[nodiscard]] int left() const { return member(index() + size() - 1); }
  [[nodiscard]] int right() const { return member(index() + 1); }
  [[nodiscard]] std::string key(const std::string& what) const { return keys_of(group.id) + what; }
  [[nodiscard]] std::optional<net::RecordSuite> suite_with(std::size_t i) const {
    return protection.between(index(), i % size());
  }
  [[nodiscard]] net::Hello hello(int from, int to) const {
    return {.purpose = "tcp:" + group.id,
            .job_id = services.world->job_id,
            .from = from,
            .to = to,
            .version = ring_version(protection.suite)};
  }
};

Result<std::unique_ptr<net::SecureListener>> listen(const Position& position) {
  // This only checks. The descriptors are free again at once, because the neighbours connect now.
  DISTRUN_RETURN_IF_ERROR(net::make_room(kFiles, "the backend tcp needs connections to both neighbours").status());
  const std::string address = any_port_of(position.services.local_host);
  auto listener =
      net::listen_secure(address, *position.services.key, position.hello(position.me(), -1), position.services.log);
  if (!listener.ok()) return listener.status();
  DISTRUN_RETURN_IF_ERROR(
      position.services.store->set(position.key(std::to_string(position.index())), (*listener)->address()));
  return listener;
}

Status connect_right(const Position& position, Ring& ring) {
  const std::size_t right = (position.index() + 1) % position.size();
  const auto address = position.services.store->get(position.key(std::to_string(right)), position.deadline);
  if (!address.ok()) return address.status();
  auto socket = net::connect_secure(*address, *position.services.key, position.hello(position.me(), position.right()),
                                    position.deadline);
  if (!socket.ok()) return socket.status().with_context("connecting to rank " + std::to_string(position.right()));
  auto link = take_over(**socket, position.suite_with(right));
  if (!link.ok()) return link.status();
  net::set_host_timeout(link->fd.get(), position.services.world->host_timeout);
  ring.right = GuardedFd(std::move(link->fd));
  ring.right_records = std::move(link->records);
  return {};
}

Status accept_left(const Position& position, net::SecureListener& listener, Ring& ring) {
  const auto accept = [&position](const net::Hello& hello) {
    return hello.from == position.left() ? std::string()
                                         : "only rank " + std::to_string(position.left()) + " may connect here";
  };
  // If a neighbour dies before it connects, the store reports it: its requests fail when the job ends.
  const auto news = [&position] {
    return position.services.store->get(position.key(std::to_string(position.index())), position.deadline).status();
  };
  auto socket = net::accept_or_news(listener, accept, position.deadline, news);
  if (!socket.ok()) return socket.status().with_context("waiting for rank " + std::to_string(position.left()));
  auto link = take_over(**socket, position.suite_with(position.index() + position.size() - 1));
  if (!link.ok()) return link.status();
  net::set_host_timeout(link->fd.get(), position.services.world->host_timeout);
  ring.left = GuardedFd(std::move(link->fd));
  ring.left_records = std::move(link->records);
  return {};
}

// Even members connect while odd ones accept, and then the other way round. So all handshakes of a ring take two turns.
// (In an odd ring the last and the first member both connect first; the first member accepts after that.)
Status join(const Position& position, net::SecureListener& listener, Ring& ring) {
  const bool connects_first = position.index() % 2 == 0;
  if (connects_first) DISTRUN_RETURN_IF_ERROR(connect_right(position, ring));
  DISTRUN_RETURN_IF_ERROR(accept_left(position, listener, ring));
  if (!connects_first) DISTRUN_RETURN_IF_ERROR(connect_right(position, ring));
  return {};
}

}  // namespace

std::string ring_version(const std::optional<net::RecordSuite>& suite) {
  return suite ? kRingVersion + (", " + to_string(*suite)) : kRingVersion;
}

std::string any_port_of(const std::string& host) {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":0";
}

Result<Ring> make_ring(const GroupSpec& group, const Services& services, TimePoint deadline) {
  Ring ring{.size = group.members.size(),
            .index = static_cast<std::size_t>(group.index),
            .host_timeout = duration_of(services.world->host_timeout)};
  if (ring.size == 1) return ring;
  auto protection = agree_on_protection(keys_of(group.id) + "protection", group, services, deadline);
  if (!protection.ok()) return protection.status();
  ring.protection = *std::move(protection);
  const Position position{.group = group, .services = services, .deadline = deadline, .protection = ring.protection};
  ring.rank = position.me();
  ring.left_rank = position.left();
  ring.right_rank = position.right();
  const auto listener = listen(position);
  DISTRUN_RETURN_IF_ERROR(agree(position.key("listen"), listener.status(), group, *services.store, deadline));
  const Status joined = join(position, **listener, ring);
  DISTRUN_RETURN_IF_ERROR(agree(position.key("join"), joined, group, *services.store, deadline));
  return ring;
}

}  // namespace distrun::backend::tcp
