#include "runtime/backend/tcp/mesh.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/backend/tcp/ring.h"
#include "runtime/net/bytes/open_files.h"
#include "runtime/net/bytes/socket.h"

namespace distrun::backend::tcp {
namespace {

constexpr std::size_t kAddressBytes = 64;  // "[v6]:port", padded with zero bytes
// A full listener drops a silent peer after 100 ms, so all attempts together take more than a minute. If a foreign
// process listens on the port of a dead member, they take only a moment. No pause between attempts is needed, because a
// new connection waits in the listener's backlog.
constexpr int kAttempts = 1000;

// Whether `from` connects to `to`. In each pair, the connecting member has the other at most half the circle ahead.
bool connects(std::size_t from, std::size_t to, std::size_t size) {
  const std::size_t ahead = (to + size - from) % size;
  return 2 * ahead < size || (2 * ahead == size && from < to);
}

}  // namespace

Result<std::unique_ptr<Mesh>> Mesh::open(const GroupSpec& group, const Services& services, Protection protection,
                                         Events events) {
  // The constructor is private.
  std::unique_ptr<Mesh> mesh(new Mesh(group, services, std::move(protection), std::move(events)));
  DISTRUN_RETURN_IF_ERROR(mesh->listen(services));
  return mesh;
}

Mesh::Mesh(const GroupSpec& group, const Services& services, Protection protection, Events events)
    : group_(group),
      size_(group.members.size()),
      index_(static_cast<std::size_t>(group.index)),
      key_(*services.key),
      job_id_(services.world->job_id),
      host_timeout_(services.world->host_timeout),
      wait_set_(*services.wait_set),
      protection_(std::move(protection)),
      events_(std::move(events)),
      here_(size_, false),
      attempts_(size_),
      own_(kAddressBytes),
      all_(kAddressBytes * size_),
      counts_(size_, kAddressBytes),
      segment_{.in = own_.data(), .out = all_.data(), .count = kAddressBytes} {
  for (std::size_t peer = 0; peer < size_; ++peer) {
    if (peer != index_ && connects(peer, index_, size_)) ++awaited_;
  }
}

Mesh::~Mesh() { stop(); }

void Mesh::stop() {
  for (const Attempt& attempt : attempts_) {
    if (attempt.connector != nullptr) wait_set_.remove(attempt.watched);
  }
  if (listener_ != nullptr) wait_set_.remove(listener_->fd());
  places_to_accept_.clear();
  places_to_connect_.clear();
}

net::Hello Mesh::hello(int to) const {
  return {.purpose = "tcp pair:" + group_.id,
          .job_id = job_id_,
          .from = group_.members[index_],
          .to = to,
          .version = ring_version(protection_.suite)};
}

Status Mesh::listen(const Services& services) {
  auto listener = net::listen_secure(any_port_of(services.local_host), key_, hello(-1), services.log);
  if (!listener.ok()) return listener.status();
  const std::string& address = (*listener)->address();
  if (address.size() > kAddressBytes) return {Errc::kSystem, address + " is not a numeric address"};
  auto places = net::make_room(
      size_ - 1, "an alltoall needs a connection to each of the other " + std::to_string(size_ - 1) + " members");
  if (!places.ok()) return places.status();
  places_to_connect_ = *std::move(places);
  for (std::size_t i = 0; i < awaited_; ++i) {
    places_to_accept_.push_back(std::move(places_to_connect_.back()));
    places_to_connect_.pop_back();
  }
  std::memcpy(own_.data(), address.data(), address.size());
  DISTRUN_RETURN_IF_ERROR(wait_set_.add((*listener)->fd(), EPOLLIN, [this](std::uint32_t) { on_listener(); }));
  listener_ = *std::move(listener);
  return {};
}

Operation Mesh::addresses() const {
  return {.kind = OpKind::kAllgather, .dtype = DType::kU8, .segments = {&segment_, 1}, .counts = counts_};
}

void Mesh::connect() {
  close_if_complete();  // in a group of two, one member only connects
  for (std::size_t peer = 0; peer < size_; ++peer) {
    if (peer != index_ && connects(index_, peer, size_)) try_connect(peer);
  }
}

std::string Mesh::address_of(std::size_t peer) const {
  const auto* text = reinterpret_cast<const char*>(all_.data() + peer * kAddressBytes);
  return {text, ::strnlen(text, kAddressBytes)};
}

std::size_t Mesh::member(int rank) const {
  const auto found = std::ranges::find(group_.members, rank);
  return static_cast<std::size_t>(found - group_.members.begin());
}

// Why `rank` may not connect to this member; empty if it may.
std::string Mesh::refusal(int rank) const {
  const std::size_t peer = member(rank);
  if (peer == size_ || peer == index_ || !connects(peer, index_, size_)) {
    return "rank " + std::to_string(rank) + " must not connect here";
  }
  return here_[peer] ? "rank " + std::to_string(rank) + " is connected already" : std::string();
}

void Mesh::on_listener() {
  places_to_accept_.clear();  // release all reserved descriptors, because the connections come together
  listener_->progress(
      Clock::now(), [this](const net::Hello& hello) { return refusal(hello.from); },
      [this](std::unique_ptr<net::SecureSocket> socket) {
        const std::size_t peer = member(socket->peer().from);
        here_[peer] = true;
        --awaited_;
        came(peer, *socket);
      });
  close_if_complete();
}

void Mesh::close_if_complete() {
  if (awaited_ > 0 || listener_ == nullptr) return;
  wait_set_.remove(listener_->fd());
  listener_.reset();
}

void Mesh::try_connect(std::size_t peer) {
  const auto address = net::parse_address(address_of(peer));
  if (!address.ok()) return give_up(peer, {Errc::kInternal, address.status().message()});
  if (!places_to_connect_.empty()) places_to_connect_.pop_back();
  auto fd = net::begin_connect(*address);
  if (!fd.ok()) return give_up(peer, fd.status());
  Attempt& attempt = attempts_[peer];
  ++attempt.made;
  const int watched = fd->get();
  const Status status = wait_set_.add(watched, EPOLLOUT, [this, peer](std::uint32_t) { on_connector(peer); });
  if (!status.ok()) return give_up(peer, status);
  attempt.watched = watched;
  attempt.connector = std::make_unique<net::SecureConnector>(*std::move(fd), false, key_, hello(group_.members[peer]));
}

void Mesh::on_connector(std::size_t peer) {
  Attempt& attempt = attempts_[peer];
  auto socket = attempt.connector->progress();
  if (socket.ok() && *socket == nullptr) {
    if (!attempt.connector->connected()) return;
    const Status status = wait_set_.modify(attempt.watched, EPOLLIN);
    if (status.ok()) return;
    socket = status;
  }
  const bool again = attempt.connector->dropped() && attempt.made < kAttempts;
  forget(peer);
  if (socket.ok()) return came(peer, **socket);
  again ? try_connect(peer) : give_up(peer, socket.status());
}

void Mesh::forget(std::size_t peer) {
  Attempt& attempt = attempts_[peer];
  if (attempt.connector == nullptr) return;
  wait_set_.remove(attempt.watched);
  attempt.connector.reset();
}

void Mesh::came(std::size_t peer, net::SecureSocket& socket) {
  auto link = take_over(socket, protection_.between(index_, peer));
  if (!link.ok()) return give_up(peer, link.status());
  net::set_host_timeout(link->fd.get(), host_timeout_);
  events_.connected(peer, *std::move(link));
}

void Mesh::give_up(std::size_t peer, const Status& why) {
  events_.failed(peer, why.with_context("tcp: connecting to rank " + std::to_string(group_.members[peer]) + " at " +
                                        address_of(peer) + " for an alltoall"));
}

}  // namespace distrun::backend::tcp
