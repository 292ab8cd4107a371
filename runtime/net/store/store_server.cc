#include "runtime/net/store/store_server.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>

#include "runtime/base/system/fork_guard.h"
#include "runtime/net/bytes/link_watches.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/identity/world.h"

namespace distrun::net {
namespace {

constexpr std::uint64_t kListenerData = ~std::uint64_t{0};  // epoll data; a rank's data is its number
constexpr std::uint64_t kClockData = kListenerData - 1;
// If this many bytes of answers wait for a rank, the server reads no requests of it until the rank has read them.
constexpr std::size_t kMaxQueued = std::size_t{4} << 20;

struct ServedRank {
  std::unique_ptr<SecureSocket> socket;
  std::uint32_t watched = 0;  // events registered with epoll
  BegunRecord begun;
};

bool speaks_of_others(StoreRequest::Kind kind) {
  using Kind = StoreRequest::Kind;
  return kind == Kind::kEarlyLeave || kind == Kind::kStall || kind == Kind::kLoss || kind == Kind::kNoProgress;
}

class Server final : public StoreServer {
 public:
  explicit Server(const StoreServerOptions& options) : options_(options), table_(options.max_bytes) {}
  Status open(const JobKey& key);

  [[nodiscard]] const std::string& address() const override { return listener_->address(); }
  [[nodiscard]] int fd() const override { return epoll_.get(); }
  void reserve(std::vector<Fd> places) override { listener_->reserve(std::move(places)); }
  void progress(TimePoint now) override;
  void publish(const JobEvent& event) override;
  bool send_event(int rank, const JobEvent& event) override;
  std::vector<StoreNotice> take_notices() override { return std::exchange(notices_, {}); }

 private:
  std::string accept(const Hello& hello);
  void join(std::unique_ptr<SecureSocket> socket);
  void serve(int rank);
  void handle(int rank, const StoreRequest& request);
  void check_others(int rank, const StoreRequest& request);
  void waits_reported(int rank, const StoreRequest& request);
  void send(int rank, const StoreReply& reply);
  void flush(int rank);
  void lose(int rank, LinkEnd end, const std::string& how);
  void lose(int rank, const Status& how) { lose(rank, how.info().link, how.message()); }
  void start_clock();
  void look_at_records(TimePoint now);
  void note(StoreNotice notice) { notices_.push_back(std::move(notice)); }

  const StoreServerOptions options_;
  StoreTable table_;
  std::unique_ptr<SecureListener> listener_;
  std::map<int, ServedRank> clients_;  // by rank
  std::vector<JobEvent> events_;       // all of them, for ranks that join later
  std::vector<StoreNotice> notices_;
  GuardedFd epoll_;
  GuardedFd clock_;  // ticks each second while a record of some rank is incomplete; created for the first one
  bool ticks_ = false;
};

Status Server::open(const JobKey& key) {
  auto listener =
      listen_secure(options_.bind_address, key, {.purpose = "store", .job_id = options_.job_id}, options_.log);
  if (!listener.ok()) return listener.status().with_context("starting the store");
  listener_ = *std::move(listener);
  epoll_ = GuardedFd(Fd(::epoll_create1(EPOLL_CLOEXEC)));
  if (!epoll_.valid()) return errno_status("starting the store: epoll_create1 failed", errno);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListenerData}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_->fd(), &event) != 0) {
    return errno_status("starting the store: epoll_ctl failed", errno);
  }
  return {};
}

void Server::progress(TimePoint now) {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t data = events[static_cast<std::size_t>(i)].data.u64;
    if (data == kListenerData) {
      listener_->progress(
          now, [this](const Hello& hello) { return accept(hello); },
          [this](std::unique_ptr<SecureSocket> socket) { join(std::move(socket)); });
    } else if (data == kClockData) {
      look_at_records(now);
    } else {
      serve(static_cast<int>(data));
    }
  }
}

std::string Server::accept(const Hello& hello) {
  const std::string rank = std::to_string(hello.from);
  if (hello.from < 0 || hello.from >= options_.size) {
    return "this job has ranks 0 to " + std::to_string(options_.size - 1) + ", and rank " + rank +
           " is not one of them";
  }
  // The process with this rank may have left just now, for instance if it shut down and initialises again.
  serve(hello.from);
  const auto holder = clients_.find(hello.from);
  if (holder == clients_.end()) return {};
  const std::string text = "process " + std::to_string(holder->second.socket->peer().pid) + " is rank " + rank +
                           " already, so process " + std::to_string(hello.pid) +
                           " cannot be it too. It may have inherited the DISTRUN_* variables: " + kHowAlone;
  note({.kind = StoreNotice::Kind::kRefused, .rank = hello.from, .pid = hello.pid, .text = text});
  return text;
}

void Server::join(std::unique_ptr<SecureSocket> socket) {
  const int rank = socket->peer().from;
  const int pid = socket->peer().pid;
  const int fd = socket->fd();
  set_host_timeout(fd, options_.host_timeout);
  clients_[rank] = {.socket = std::move(socket), .watched = EPOLLIN};
  note({.kind = StoreNotice::Kind::kJoined, .rank = rank, .pid = pid});
  epoll_event event{.events = EPOLLIN, .data = {.u64 = static_cast<std::uint64_t>(rank)}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return lose(rank, errno_status("epoll_ctl failed", errno));
  }
  for (const JobEvent& past : events_) send(rank, {.kind = StoreReply::Kind::kEvent, .event = past});
  flush(rank);
}

void Server::serve(int rank) {
  std::vector<std::byte> frame;
  for (auto it = clients_.find(rank); it != clients_.end(); it = clients_.find(rank)) {
    SecureSocket& socket = *it->second.socket;
    if (socket.queued() > kMaxQueued) {
      flush(rank);
      if (socket.queued() > kMaxQueued) return;  // called again when there is room to write
    }
    const auto received = socket.receive_frame(frame);
    if (!received.ok()) return lose(rank, received.status());
    if (!*received) break;
    const auto request = decode_request(frame);
    if (!request.ok()) return lose(rank, LinkEnd::kMalformed, request.status().message());
    handle(rank, *request);
  }
  const auto client = clients_.find(rank);
  if (client != clients_.end() && client->second.socket->begun() != 0) start_clock();
  flush(rank);
}

// Starts a timer for incomplete records. If that fails, the server waits for such a record without a limit.
void Server::start_clock() {
  if (ticks_) return;
  if (!clock_.valid()) {
    clock_ = GuardedFd(Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)));
    epoll_event event{.events = EPOLLIN, .data = {.u64 = kClockData}};
    if (!clock_.valid() || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, clock_.get(), &event) != 0) return;
  }
  const itimerspec each_second{.it_interval = {.tv_sec = 1, .tv_nsec = 0}, .it_value = {.tv_sec = 1, .tv_nsec = 0}};
  ticks_ = ::timerfd_settime(clock_.get(), 0, &each_second, nullptr) == 0;
}

void Server::look_at_records(TimePoint now) {
  std::uint64_t times = 0;
  [[maybe_unused]] const ssize_t n = ::read(clock_.get(), &times, sizeof(times));
  const Duration limit = duration_of(options_.host_timeout);
  std::vector<int> overdue;
  bool any = false;
  for (auto& [rank, client] : clients_) {
    if (client.begun.overdue(client.socket->begun(), now, limit)) overdue.push_back(rank);
    any = any || client.begun.waits();
  }
  for (const int rank : overdue) {
    const int fd = clients_.find(rank)->second.socket->fd();
    lose(rank, LinkEnd::kUnfinished, text_of_end(fd, LinkEnd::kUnfinished, limit));
  }
  if (any) return;
  const itimerspec never{};
  ::timerfd_settime(clock_.get(), 0, &never, nullptr);
  ticks_ = false;
}

void Server::handle(int rank, const StoreRequest& request) {
  if (request.kind == StoreRequest::Kind::kLeave) {
    note({.kind = StoreNotice::Kind::kLeft, .rank = rank});
    return lose(rank, LinkEnd::kClosed, "closed, because the rank has left");  // the rank waits for this
  }
  if (request.kind == StoreRequest::Kind::kFailure) {
    return note({.kind = StoreNotice::Kind::kFailed, .rank = rank, .failure = request.failure});
  }
  if (request.kind == StoreRequest::Kind::kStop) {
    return note({.kind = StoreNotice::Kind::kStopping, .rank = rank, .text = request.value});
  }
  if (request.kind == StoreRequest::Kind::kWaits) return waits_reported(rank, request);
  if (request.kind == StoreRequest::Kind::kState) {
    return note({.kind = StoreNotice::Kind::kState, .rank = rank, .state = request.state});
  }
  if (speaks_of_others(request.kind)) return check_others(rank, request);
  table_.handle(rank, request, [&](int to, const StoreReply& reply) {
    send(to, reply);
    if (to != rank) flush(to);  // the rank's own answers are flushed together, at the end of serve()
  });
}

void Server::check_others(int rank, const StoreRequest& request) {
  const bool left = request.kind == StoreRequest::Kind::kEarlyLeave;
  for (const int other : left ? std::vector<int>{request.rank} : request.missed.ranks) {
    if (other < 0 || other >= options_.size) {
      return lose(rank, LinkEnd::kMalformed,
                  "it named rank " + std::to_string(other) + ", which this job does not have");
    }
  }
  if (left) return note({.kind = StoreNotice::Kind::kLeftEarly, .rank = request.rank, .failure = request.failure});
  const auto kind = request.kind == StoreRequest::Kind::kStall  ? StoreNotice::Kind::kStalled
                    : request.kind == StoreRequest::Kind::kLoss ? StoreNotice::Kind::kFollows
                                                                : StoreNotice::Kind::kNoProgress;
  note({.kind = kind, .rank = rank, .failure = request.failure, .missed = request.missed});
}

void Server::waits_reported(int rank, const StoreRequest& request) {
  const auto unknown = [this](int one) { return one < 0 || one >= options_.size; };
  for (const RankWait& wait : request.waits) {
    for (const auto* ranks : {&wait.waiting, &wait.missing}) {
      const auto found = std::find_if(ranks->begin(), ranks->end(), unknown);
      if (found == ranks->end()) continue;
      return lose(rank, LinkEnd::kMalformed,
                  "it named rank " + std::to_string(*found) + ", which this job does not have");
    }
  }
  note({.kind = StoreNotice::Kind::kWaits, .rank = rank, .waits = request.waits});
}

void Server::send(int rank, const StoreReply& reply) {
  const auto client = clients_.find(rank);
  // Errors are ignored: the next read reports the end of the connection.
  if (client != clients_.end()) (void)client->second.socket->send_frame(encode(reply));
}

void Server::flush(int rank) {
  const auto client = clients_.find(rank);
  if (client == clients_.end()) return;
  SecureSocket& socket = *client->second.socket;
  (void)socket.flush();
  std::uint32_t events = socket.queued() > kMaxQueued ? 0U : std::uint32_t{EPOLLIN};
  if (socket.wants_write()) events |= EPOLLOUT;
  if (events == client->second.watched) return;
  client->second.watched = events;
  epoll_event event{.events = events, .data = {.u64 = static_cast<std::uint64_t>(rank)}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket.fd(), &event);
}

void Server::publish(const JobEvent& event) {
  events_.push_back(event);
  for (const auto& [rank, client] : clients_) {
    send(rank, {.kind = StoreReply::Kind::kEvent, .event = event});
    flush(rank);
  }
}

bool Server::send_event(int rank, const JobEvent& event) {
  if (!clients_.contains(rank)) return false;
  send(rank, {.kind = StoreReply::Kind::kEvent, .event = event});
  flush(rank);
  return true;
}

void Server::lose(int rank, LinkEnd end, const std::string& how) {
  const auto client = clients_.find(rank);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client->second.socket->fd(), nullptr);
  const int pid = client->second.socket->peer().pid;
  clients_.erase(client);
  table_.forget(rank);
  note({.kind = StoreNotice::Kind::kDisconnected, .rank = rank, .pid = pid, .end = end, .text = how});
}

}  // namespace

Result<std::unique_ptr<StoreServer>> StoreServer::create(const JobKey& key, const StoreServerOptions& options) {
  auto server = std::make_unique<Server>(options);
  DISTRUN_RETURN_IF_ERROR(server->open(key));
  return std::unique_ptr<StoreServer>(std::move(server));
}

}  // namespace distrun::net
