#include "runtime/net/store/store_client.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <optional>

#include "runtime/base/annotations.h"
#include "runtime/base/system/fork_guard.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/secure/secure_socket.h"
#include "runtime/net/store/store_protocol.h"

namespace distrun::net {
namespace {

// For calls without a deadline argument. A launcher that runs answers within milliseconds.
constexpr double kAnswerSeconds = 60;
constexpr double kLastMessageSeconds = 5;

void ring(int event_fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(event_fd, &one, sizeof(one));
}

// One thread's outstanding request. It is on the stack of that thread, and registered under the client's mutex.
struct Waiter {
  Fd wake;  // rung by the thread that reads the reply
  std::optional<StoreReply> reply;
};

class SocketStoreClient final : public StoreClient {
 public:
  SocketStoreClient(std::unique_ptr<SecureSocket> socket, const World& world, int store_rank)
      : server_((store_rank < 0 ? "the launcher at "
                                : "rank " + std::to_string(store_rank) + ", which keeps the store, at ") +
                world.store),
        own_rank_(world.rank),
        own_host_(world.host),
        store_rank_(store_rank),
        socket_fd_(socket->fd()),
        socket_(std::move(socket)) {}
  Status open();

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, TimePoint deadline) override;
  Result<std::int64_t> add(const std::string& key, std::int64_t delta) override {
    return sum({.kind = StoreRequest::Kind::kAdd, .key = key, .delta = delta});
  }
  Result<std::optional<std::string>> swap(const std::string& key, const std::optional<std::string>& expected,
                                          const std::optional<std::string>& wanted) override;
  Result<std::int64_t> count(const std::string& prefix) override {
    return sum({.kind = StoreRequest::Kind::kCount, .key = prefix});
  }
  Status erase(const std::string& prefix, int members) override {
    return send_request({.kind = StoreRequest::Kind::kErase, .key = prefix, .delta = members});
  }
  [[nodiscard]] int fd() const override { return epoll_.get(); }
  Result<std::vector<JobEvent>> receive() override;
  Status leave() override;
  Status report_failure(const RankFailure& failure) override {
    return send_request({.kind = StoreRequest::Kind::kFailure, .failure = failure});
  }
  Status report_early_leave(int rank, const RankFailure& failure) override {
    return send_request({.kind = StoreRequest::Kind::kEarlyLeave, .rank = rank, .failure = failure});
  }
  Status report_stall(const MissedPeers& missed, const RankFailure& failure) override {
    return send_request({.kind = StoreRequest::Kind::kStall, .missed = missed, .failure = failure});
  }
  Status report_loss(const MissedPeers& missed, const RankFailure& failure) override {
    return send_request({.kind = StoreRequest::Kind::kLoss, .missed = missed, .failure = failure});
  }
  Status report_no_progress(const RankFailure& failure) override {
    return send_request({.kind = StoreRequest::Kind::kNoProgress, .failure = failure});
  }
  Status report_waits(const std::vector<RankWait>& waits) override {
    return send_request({.kind = StoreRequest::Kind::kWaits, .waits = waits});
  }
  Status report_state(const ProgramState& state) override {
    return send_request({.kind = StoreRequest::Kind::kState, .state = state});
  }
  Status report_stop(const std::string& cause) override {
    return send_request({.kind = StoreRequest::Kind::kStop, .value = cause});
  }
  [[nodiscard]] std::string local_host() const override { return local_host_of(socket_fd_); }

 private:
  // Unregisters the waiter however its call ends, because the waiter is on the stack of that call.
  struct Registration {
    ~Registration() {
      const MutexLock lock(client.mutex_);
      const auto waiter = client.waiters_.find(id);
      if (waiter == client.waiters_.end()) return;
      client.keep(std::move(waiter->second->wake));
      client.waiters_.erase(waiter);
    }
    SocketStoreClient& client;
    std::uint64_t id;
  };

  Result<StoreReply> call(StoreRequest request, TimePoint deadline);
  Result<std::int64_t> sum(StoreRequest request);
  Result<StoreReply> wait_for_reply(Waiter& waiter, const StoreRequest& request, TimePoint deadline);
  Status send_request(const StoreRequest& request);
  [[nodiscard]] Status send(const StoreRequest& request) DISTRUN_REQUIRES(mutex_);
  void read_all() DISTRUN_REQUIRES(mutex_);
  void dispatch(const StoreReply& reply) DISTRUN_REQUIRES(mutex_);
  void lose(const Status& how) DISTRUN_REQUIRES(mutex_);
  // Keeps one descriptor, so that a process without free descriptors can still report this.
  void keep(Fd wake) DISTRUN_REQUIRES(mutex_) {
    std::uint64_t rung = 0;
    [[maybe_unused]] const ssize_t n = ::read(wake.get(), &rung, sizeof(rung));
    if (!spare_.valid()) spare_ = std::move(wake);
  }

  const std::string server_;  // for error texts
  const int own_rank_;
  const std::string own_host_;
  const int store_rank_;
  const int socket_fd_;
  GuardedFd epoll_;  // returned by fd(); watches the socket and news_
  GuardedFd news_;   // rung while receive() has something to return that is not in the socket

  Mutex mutex_;
  std::unique_ptr<SecureSocket> socket_ DISTRUN_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Waiter*> waiters_ DISTRUN_GUARDED_BY(mutex_);
  Fd spare_ DISTRUN_GUARDED_BY(mutex_);  // for the next call
  std::uint64_t next_id_ DISTRUN_GUARDED_BY(mutex_) = 1;
  std::vector<JobEvent> events_ DISTRUN_GUARDED_BY(mutex_);
  Status lost_ DISTRUN_GUARDED_BY(mutex_);
  Status job_ended_ DISTRUN_GUARDED_BY(mutex_);  // set by the first event that ends the job
};

Status SocketStoreClient::open() {
  {
    const MutexLock lock(mutex_);
    spare_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!spare_.valid()) return errno_status("the launcher's channel cannot be used", errno);
  }
  epoll_ = GuardedFd(Fd(::epoll_create1(EPOLL_CLOEXEC)));
  news_ = GuardedFd(Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!epoll_.valid() || !news_.valid()) return errno_status("the launcher's channel cannot be watched", errno);
  for (const int fd : {socket_fd_, news_.get()}) {
    epoll_event event{.events = EPOLLIN, .data = {}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return errno_status("epoll_ctl failed", errno);
  }
  return {};
}

Status check_value(const std::string& key, const std::optional<std::string>& value) {
  if (!value || value->size() <= kMaxStoreValue) return {};
  return {Errc::kInvalidArgument, "store: the value of '" + key + "' has " + std::to_string(value->size()) +
                                      " bytes, and at most 1 MiB is kept"};
}

Status SocketStoreClient::set(const std::string& key, const std::string& value) {
  DISTRUN_RETURN_IF_ERROR(check_value(key, value));
  return call({.kind = StoreRequest::Kind::kSet, .key = key, .value = value}, deadline_after(kAnswerSeconds)).status();
}

Result<std::string> SocketStoreClient::get(const std::string& key, TimePoint deadline) {
  auto reply = call({.kind = StoreRequest::Kind::kGet, .key = key}, deadline);
  if (!reply.ok()) return reply.status();
  return std::move(reply->text);
}

Result<std::int64_t> SocketStoreClient::sum(StoreRequest request) {
  const auto reply = call(std::move(request), deadline_after(kAnswerSeconds));
  if (!reply.ok()) return reply.status();
  return reply->sum;
}

Result<std::optional<std::string>> SocketStoreClient::swap(const std::string& key,
                                                           const std::optional<std::string>& expected,
                                                           const std::optional<std::string>& wanted) {
  DISTRUN_RETURN_IF_ERROR(check_value(key, expected));
  DISTRUN_RETURN_IF_ERROR(check_value(key, wanted));
  auto reply = call({.kind = StoreRequest::Kind::kSwap, .key = key, .expected = expected, .wanted = wanted},
                    deadline_after(kAnswerSeconds));
  if (!reply.ok()) return reply.status();
  if (reply->kind == StoreReply::Kind::kAbsent) return std::optional<std::string>();
  return std::optional<std::string>(std::move(reply->text));
}

Result<StoreReply> SocketStoreClient::call(StoreRequest request, TimePoint deadline) {
  if (request.key.size() > kMaxStoreKey) {
    return Status(Errc::kInvalidArgument, "store: the key '" + request.key.substr(0, 60) + "...' has " +
                                              std::to_string(request.key.size()) + " bytes, and at most 1 KiB is kept");
  }
  Waiter waiter;
  {
    const MutexLock lock(mutex_);
    waiter.wake = std::move(spare_);
  }
  if (!waiter.wake.valid()) waiter.wake = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!waiter.wake.valid()) return errno_status("store: eventfd failed", errno);
  {
    const MutexLock lock(mutex_);
    request.id = next_id_++;
    DISTRUN_RETURN_IF_ERROR(send(request));
    waiters_[request.id] = &waiter;
  }
  const Registration registration{.client = *this, .id = request.id};
  auto reply = wait_for_reply(waiter, request, deadline);
  const MutexLock lock(mutex_);
  if (!reply.ok() && reply.status().code() != Errc::kInvalidArgument) {
    // Tells the server to forget the request. dispatch() drops an answer that is already on its way.
    (void)send({.kind = StoreRequest::Kind::kCancel, .id = request.id});
  }
  return reply;
}

Result<StoreReply> SocketStoreClient::wait_for_reply(Waiter& waiter, const StoreRequest& request, TimePoint deadline) {
  for (;;) {
    bool wants_write = false;
    {
      const MutexLock lock(mutex_);
      read_all();
      if (waiter.reply) {
        if (waiter.reply->kind != StoreReply::Kind::kRefused) return *std::move(waiter.reply);
        return Status(Errc::kInvalidArgument, "store: " + waiter.reply->text);
      }
      DISTRUN_RETURN_IF_ERROR(lost_);
      // The missing rank may be the one that should set the key. The client does not know which rank sets it.
      if (request.kind == StoreRequest::Kind::kGet) DISTRUN_RETURN_IF_ERROR(job_ended_);
      wants_write = socket_->wants_write();
      if (wants_write) (void)socket_->flush();
    }
    if (Clock::now() >= deadline) {
      const bool got = request.kind == StoreRequest::Kind::kGet;
      return Status(Errc::kTimeout, got ? "store: no rank has set '" + request.key + "' in time"
                                        : "store: " + server_ + " did not answer in time");
    }
    const short events = wants_write ? POLLIN | POLLOUT : POLLIN;
    std::array<pollfd, 2> items{{{.fd = socket_fd_, .events = events, .revents = 0},
                                 {.fd = waiter.wake.get(), .events = POLLIN, .revents = 0}}};
    ::poll(items.data(), items.size(), poll_timeout_ms(deadline));
  }
}

Status SocketStoreClient::send_request(const StoreRequest& request) {
  const TimePoint deadline = deadline_after(kLastMessageSeconds);
  bool first = true;
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (first) DISTRUN_RETURN_IF_ERROR(send(request));
      first = false;
      if (socket_->wants_write()) (void)socket_->flush();
      if (!socket_->wants_write()) return lost_;
    }
    if (const Status ready = wait_ready(socket_fd_, POLLOUT, deadline); !ready.ok()) {
      return ready.with_context("telling the launcher at " + server_);
    }
  }
}

// If the last segment of a connection is lost, the server may still hold the connection when this process initialises
// again. So leave() returns only after the server has closed it, or at the deadline.
Status SocketStoreClient::leave() {
  const TimePoint deadline = deadline_after(kLastMessageSeconds);
  DISTRUN_RETURN_IF_ERROR(send_request({.kind = StoreRequest::Kind::kLeave}));
  for (;;) {
    {
      const MutexLock lock(mutex_);
      read_all();
      if (!lost_.ok()) return {};
    }
    if (!wait_ready(socket_fd_, POLLIN, deadline).ok()) return {};  // the request has been sent
  }
}

Status SocketStoreClient::send(const StoreRequest& request) {
  DISTRUN_RETURN_IF_ERROR(lost_);
  Status status = socket_->send_frame(encode(request));
  if (status.ok()) status = socket_->flush();
  if (status.ok()) return {};
  read_all();  // keeps messages that the launcher sent before it ended, and records the loss
  if (lost_.ok()) lose(status);
  return lost_;
}

void SocketStoreClient::read_all() {
  std::vector<std::byte> frame;
  while (lost_.ok()) {
    const auto received = socket_->receive_frame(frame);
    if (!received.ok()) return lose(received.status());
    if (!*received) return;
    const auto reply = decode_reply(frame);
    if (!reply.ok()) return lose(reply.status());
    dispatch(*reply);
  }
}

void SocketStoreClient::dispatch(const StoreReply& reply) {
  if (reply.kind == StoreReply::Kind::kEvent) {
    events_.push_back(reply.event);
    ring(news_.get());
    if (!job_ended_.ok()) return;
    job_ended_ = end_of_job(reply.event);
    if (job_ended_.ok()) return;
    for (const auto& [id, waiter] : waiters_) ring(waiter->wake.get());
    return;
  }
  const auto waiter = waiters_.find(reply.id);
  if (waiter == waiters_.end()) return;  // the waiter gave up
  waiter->second->reply = reply;
  ring(waiter->second->wake.get());
}

void SocketStoreClient::lose(const Status& how) {
  ErrorInfo info{.code = Errc::kRankLost, .usable = false, .link = how.info().link};
  if (store_rank_ < 0) {
    // This rank reports itself. If the launcher is gone, every rank does this.
    info.message = server_ + " has ended, or the network to it is broken: " + how.message();
    info.ranks = {own_rank_};
    info.host = own_host_;
    info.cause = "its connection to the launcher ended";
  } else {
    info.message = server_ + " has ended: " + how.message();
    info.ranks = {store_rank_};
    info.cause = "its process ended";
  }
  lost_ = Status(std::move(info));
  for (const auto& [id, waiter] : waiters_) ring(waiter->wake.get());
  // fd() is readable until receive() has returned the loss, and not after that.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket_fd_, nullptr);
  ring(news_.get());
}

Result<std::vector<JobEvent>> SocketStoreClient::receive() {
  const MutexLock lock(mutex_);
  read_all();
  std::uint64_t times = 0;
  [[maybe_unused]] const ssize_t n = ::read(news_.get(), &times, sizeof(times));
  if (socket_->wants_write()) (void)socket_->flush();
  if (events_.empty() && !lost_.ok()) return lost_;
  if (!lost_.ok()) ring(news_.get());  // the next call returns the loss
  return std::exchange(events_, {});
}

}  // namespace

Result<std::unique_ptr<StoreClient>> StoreClient::connect(const World& world, const JobKey& key, TimePoint deadline,
                                                          int store_rank) {
  auto socket = connect_secure(world.store, key,
                               {.purpose = "store", .job_id = world.job_id, .from = world.rank, .to = -1}, deadline);
  if (!socket.ok()) return socket.status();
  set_host_timeout((*socket)->fd(), world.host_timeout);
  auto client = std::make_unique<SocketStoreClient>(*std::move(socket), world, store_rank);
  if (Status opened = client->open(); !opened.ok()) {
    // Report it, because the others would wait for this rank. It has no free descriptors.
    (void)client->report_failure({.cause = opened.message()});
    return opened;
  }
  return std::unique_ptr<StoreClient>(std::move(client));
}

}  // namespace distrun::net
