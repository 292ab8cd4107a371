#include "runtime/net/control/tcp_control.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <numeric>

#include "runtime/base/system/fork_guard.h"
#include "runtime/net/bytes/open_files.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::net {
namespace {

struct TcpPeer {
  // null for this member; on a member that is not the leader, null for all but the leader
  std::unique_ptr<SecureSocket> socket;
  std::uint32_t watched = 0;  // events registered with epoll; 0 once the connection has ended
  Status lost;
  bool may_go = false;
};

class TcpControl final : public ControlPlane {
 public:
  // sockets[i] is the connection to member i.
  TcpControl(int rank, std::vector<std::unique_ptr<SecureSocket>> sockets, WaitSet* wait_set);
  TcpControl(const TcpControl&) = delete;
  TcpControl& operator=(const TcpControl&) = delete;
  ~TcpControl() override;
  Status open(double host_timeout);  // host_timeout in seconds

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(peers_.size()); }
  Status send(int to, std::span<const std::byte> message) override;
  Status broadcast(std::span<const std::byte> message) override;
  bool receive(Received& out) override;
  bool progress() override;
  [[nodiscard]] bool pending() const override;
  [[nodiscard]] Queued queued() const override;
  void may_go(int member) override;
  [[nodiscard]] std::optional<EndedLink> lost() const override;

 private:
  bool flush(int member);
  bool read(int member);
  void watch(int member);
  void lose(int member, const Status& how);
  TcpPeer& peer(int member) { return peers_[static_cast<std::size_t>(member)]; }

  const int rank_;
  WaitSet* const wait_set_;
  std::vector<TcpPeer> peers_;
  std::vector<int> unsent_;  // members with queued bytes, each at most once
  std::deque<Received> inbox_;
  std::optional<int> lost_;
  // watches all sockets, and is itself in the wait set; one call finds the ready ones among many members
  GuardedFd epoll_;
};

TcpControl::TcpControl(int rank, std::vector<std::unique_ptr<SecureSocket>> sockets, WaitSet* wait_set)
    : rank_(rank), wait_set_(wait_set), peers_(sockets.size()) {
  for (std::size_t i = 0; i < sockets.size(); ++i) peers_[i].socket = std::move(sockets[i]);
}

TcpControl::~TcpControl() {
  if (epoll_.valid()) wait_set_->remove(epoll_.get());
  for (const TcpPeer& one : peers_) {
    if (one.socket) wait_set_->remove_link(one.socket->fd());
  }
}

Status TcpControl::open(double host_timeout) {
  GuardedFd epoll(Fd(::epoll_create1(EPOLL_CLOEXEC)));
  if (!epoll.valid()) return errno_status("control plane: epoll_create1 failed", errno);
  for (int member = 0; member < size(); ++member) {
    if (!peer(member).socket) continue;
    epoll_event event{.events = EPOLLIN, .data = {.u64 = static_cast<std::uint64_t>(member)}};
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, peer(member).socket->fd(), &event) != 0) {
      return errno_status("control plane: epoll_ctl failed", errno);
    }
    peer(member).watched = EPOLLIN;
    set_host_timeout(peer(member).socket->fd(), host_timeout);
    // An engine does not read while it creates the backends of a process set, or while it is stopped.
    allow_slow_reader(peer(member).socket->fd());
    wait_set_->add_link(peer(member).socket->fd(), {.limit = duration_of(host_timeout),
                                                    .begun = [this, member] { return peer(member).socket->begun(); },
                                                    .ended =
                                                        [this, member](LinkEnd end, const std::string& how) {
                                                          if (peer(member).lost.ok())
                                                            lose(member, peer(member).socket->give_up(end, how));
                                                        }});
  }
  DISTRUN_RETURN_IF_ERROR(wait_set_->add(epoll.get(), EPOLLIN, [this](std::uint32_t) { progress(); }));
  epoll_ = std::move(epoll);
  return {};
}

Status TcpControl::send(int to, std::span<const std::byte> message) {
  DISTRUN_CHECK(to >= 0 && to < size() && to != rank_, "a control message to a member that does not exist");
  TcpPeer& target = peer(to);
  DISTRUN_CHECK(target.socket, "a member sends to the leader only");
  if (!target.lost.ok()) return target.may_go ? Status() : target.lost;
  const bool idle = !target.socket->wants_write();
  if (Status sent = target.socket->send_frame(message); !sent.ok()) return target.may_go ? Status() : sent;
  if (idle) unsent_.push_back(to);
  return {};
}

Status TcpControl::broadcast(std::span<const std::byte> message) {
  DISTRUN_CHECK(rank_ == 0, "only the leader broadcasts");
  Status first;
  for (int to = 1; to < size(); ++to) {
    const Status status = send(to, message);
    if (first.ok()) first = status;  // send to the other members anyway
  }
  return first;
}

bool TcpControl::receive(Received& out) {
  if (inbox_.empty()) return false;
  out = std::move(inbox_.front());
  inbox_.pop_front();
  return true;
}

bool TcpControl::pending() const { return !unsent_.empty(); }

Queued TcpControl::queued() const {
  Queued queued;
  for (const int member : unsent_) {
    const TcpPeer& one = peers_[static_cast<std::size_t>(member)];
    if (!one.may_go) queued.add(one.socket->queued());
  }
  return queued;
}

bool TcpControl::progress() {
  bool moved = false;
  std::vector<int> sending = std::exchange(unsent_, {});
  for (const int member : sending) {
    moved = flush(member) || moved;
    if (peer(member).socket->wants_write()) unsent_.push_back(member);
    watch(member);
  }
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    // EPOLLOUT needs no action here: the next progress() flushes all unsent messages.
    const int member = static_cast<int>(events[static_cast<std::size_t>(i)].data.u64);
    moved = read(member) || moved;
  }
  return moved;
}

bool TcpControl::flush(int member) {
  const std::size_t before = peer(member).socket->queued();
  // Ignore errors here. A later read reports the end of the connection, after all messages that the peer sent before.
  (void)peer(member).socket->flush();
  return peer(member).socket->queued() != before;
}

bool TcpControl::read(int member) {
  bool moved = false;
  Received message{.from = member, .bytes = {}};
  while (peer(member).lost.ok()) {
    const auto received = peer(member).socket->receive_frame(message.bytes);
    if (!received.ok()) {
      lose(member, received.status());
      return true;
    }
    if (!*received) break;
    inbox_.push_back(std::move(message));
    message = {.from = member, .bytes = {}};
    moved = true;
  }
  return moved;
}

void TcpControl::watch(int member) {
  TcpPeer& of = peer(member);
  if (of.watched == 0) return;
  const std::uint32_t events = of.socket->wants_write() ? EPOLLIN | EPOLLOUT : EPOLLIN;
  if (events == of.watched) return;
  of.watched = events;
  epoll_event event{.events = events, .data = {.u64 = static_cast<std::uint64_t>(member)}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, of.socket->fd(), &event);
}

void TcpControl::lose(int member, const Status& how) {
  TcpPeer& of = peer(member);
  // Its end of file would wake the wait set again and again.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, of.socket->fd(), nullptr);
  wait_set_->remove_link(of.socket->fd());
  of.watched = 0;
  of.lost = how;
  std::erase(unsent_, member);
  if (!lost_ && !of.may_go) lost_ = member;
}

std::optional<EndedLink> TcpControl::lost() const {
  if (!lost_) return std::nullopt;
  const ErrorInfo& how = peers_[static_cast<std::size_t>(*lost_)].lost.info();
  return EndedLink{.peer = *lost_, .end = how.link, .how = how.cause};
}

void TcpControl::may_go(int member) {
  peer(member).may_go = true;
  if (lost_ != member) return;
  const auto next =
      std::find_if(peers_.begin(), peers_.end(), [](const TcpPeer& one) { return !one.lost.ok() && !one.may_go; });
  lost_ = next == peers_.end() ? std::nullopt : std::optional<int>(static_cast<int>(next - peers_.begin()));
}

std::string store_key(const TcpControlOptions& options) { return "control/" + options.name; }

Hello hello(const TcpControlOptions& options, int to) {
  return {.purpose = "control:" + options.name, .job_id = options.world->job_id, .from = options.world->rank, .to = to};
}

std::vector<int> missing_of(const std::vector<int>& members,
                            const std::vector<std::unique_ptr<SecureSocket>>& sockets) {
  std::vector<int> missing;
  for (std::size_t i = 1; i < members.size(); ++i) {
    if (!sockets[i]) missing.push_back(members[i]);
  }
  return missing;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

// The address where other ranks reach this process: the one that the launcher gave, or that of the interface through
// which this process reaches the store.
Result<std::string> bind_address(const World& world) {
  if (!world.address.empty()) return to_string(Address{.host = world.address});
  auto store = parse_address(world.store);
  if (!store.ok() || store->kind == Address::Kind::kUnix) return std::string("127.0.0.1:0");
  auto host = local_host_towards(*store);
  if (!host.ok()) return host.status();
  return to_string(Address{.host = *std::move(host)});
}

Result<std::vector<std::unique_ptr<SecureSocket>>> lead(const TcpControlOptions& options,
                                                        const std::vector<int>& members) {
  std::vector<std::unique_ptr<SecureSocket>> sockets(members.size());
  if (members.size() == 1) return sockets;
  const auto address = bind_address(*options.world);
  if (!address.ok()) return address.status();
  auto listener = listen_secure(*address, *options.key, hello(options, -1), options.log);
  if (!listener.ok()) return listener.status();
  auto places =
      make_room(members.size() - 1, "rank " + std::to_string(options.world->rank) + " needs a connection to each of " +
                                        std::to_string(members.size() - 1) + " other ranks");
  if (!places.ok()) return places.status();
  (*listener)->reserve(*std::move(places));
  DISTRUN_RETURN_IF_ERROR(options.store->set(store_key(options), (*listener)->address()));
  const auto index_of = [&](int rank) {
    return static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
  };
  const auto accept = [&](const Hello& peer) -> std::string {
    const std::size_t index = index_of(peer.from);
    if (index == 0 || index >= members.size()) return "rank " + std::to_string(peer.from) + " is not in this group";
    if (sockets[index]) return "rank " + std::to_string(peer.from) + " is connected already";
    return {};
  };
  // If a member died before it connected, the store knows that and answers with the error that ends the job.
  const auto news = [&options] { return options.store->get(store_key(options), options.deadline).status(); };
  for (std::size_t missing = members.size() - 1; missing > 0;) {
    auto socket = accept_or_news(**listener, accept, options.deadline, news);
    if (!socket.ok()) {
      if (socket.status().code() != Errc::kTimeout) return socket.status();
      ErrorInfo info = socket.status().info();
      info.ranks = missing_of(members, sockets);
      info.message = "waiting for rank(s) " + ranks_text(info.ranks) + " to connect (control plane '" + options.name +
                     "'): " + info.message;
      return Status(std::move(info));
    }
    const std::size_t index = index_of((*socket)->peer().from);
    // The listener may accept two connections of one rank in one turn. Keep the first one.
    if (sockets[index]) continue;
    sockets[index] = *std::move(socket);
    --missing;
  }
  return sockets;
}

Result<std::vector<std::unique_ptr<SecureSocket>>> follow(const TcpControlOptions& options,
                                                          const std::vector<int>& members) {
  std::vector<std::unique_ptr<SecureSocket>> sockets(members.size());
  const auto address = options.store->get(store_key(options), options.deadline);
  if (!address.ok()) return address.status().with_context("waiting for rank " + std::to_string(members[0]));
  auto socket = connect_secure(*address, *options.key, hello(options, members[0]), options.deadline);
  if (!socket.ok()) return socket.status();
  sockets[0] = *std::move(socket);
  return sockets;
}

}  // namespace

Result<std::unique_ptr<ControlPlane>> connect_tcp_control(const TcpControlOptions& options) {
  std::vector<int> members = options.members;
  if (members.empty()) {
    members.resize(static_cast<std::size_t>(options.world->size));
    std::iota(members.begin(), members.end(), 0);
  }
  const auto self = std::find(members.begin(), members.end(), options.world->rank);
  DISTRUN_CHECK(self != members.end(), "a rank connects a control plane that it is not a member of");
  const int rank = static_cast<int>(self - members.begin());
  auto sockets = rank == 0 ? lead(options, members) : follow(options, members);
  if (!sockets.ok()) return sockets.status();
  auto plane = std::make_unique<TcpControl>(rank, *std::move(sockets), options.wait_set);
  DISTRUN_RETURN_IF_ERROR(plane->open(options.world->host_timeout));
  return std::unique_ptr<ControlPlane>(std::move(plane));
}

}  // namespace distrun::net
