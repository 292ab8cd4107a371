// listen_secure: the responder's side. Runs many handshakes at once, does not block, and trusts no peer.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <map>
#include <optional>

#include "runtime/base/log.h"
#include "runtime/base/system/fork_guard.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/secure/handshake.h"
#include "runtime/net/secure/secure_socket.h"
#include "runtime/net/secure/secure_stream.h"

namespace distrun::net {
namespace {

constexpr std::size_t kMaxStrangers = 128;
constexpr Duration kHandshakeTime = std::chrono::seconds(5);
// A peer that is silent for this time may have to make room. It is many times the time of an answer, so that peers that
// all connect at once can stay.
constexpr Duration kSilence = std::chrono::milliseconds(100);
constexpr Duration kRestAfterShortage = std::chrono::seconds(1);
// A shortage of this length does not pass by itself. A caller that blocks gets it as an error.
constexpr Duration kLastingShortage = std::chrono::seconds(2);
constexpr Duration kLogInterval = std::chrono::seconds(1);
constexpr std::uint64_t kListenerId = 0;  // epoll data; strangers have ids from 2
constexpr std::uint64_t kTimerId = 1;
constexpr std::size_t kEventsPerTurn = kMaxStrangers + 2;  // the largest possible number

// A listener without a purpose takes peers of several purposes.
std::string named(const std::string& purpose) { return purpose.empty() ? "" : " (" + purpose + ")"; }

// A peer that has connected and has not proved anything yet. Holds at most one handshake message from it.
struct Stranger {
  Stranger(Fd connection, const JobKey& key, const Hello& self, TimePoint now)
      : fd(GuardedFd(std::move(connection))),
        handshake(NoiseHandshake::Role::kResponder, key, self),
        since(now),
        last_message(now) {}
  GuardedFd fd;
  Handshake handshake;
  std::vector<std::byte> received;
  TimePoint since;
  TimePoint last_message;  // when its last whole message came; single bytes do not count
  bool refused = false;    // not a stranger: it has the key, and it got the reason for the refusal
};

// accept() has failed because the process or the machine has no descriptor or memory left. It ends when a peer joins,
// or when no peer waits any more.
struct Shortage {
  TimePoint since;
  Status why;
};

class Listener final : public SecureListener {
 public:
  Listener(const JobKey& key, const Hello& self, const Log* log) : key_(key), self_(self), log_(log) {}
  Status open(Fd listening, const Address& address);

  [[nodiscard]] const std::string& address() const override { return address_text_; }
  [[nodiscard]] int fd() const override { return epoll_.get(); }
  void reserve(std::vector<Fd> places) override { places_ = std::move(places); }
  void progress(TimePoint now, const AcceptFunction& accept, const PeerFunction& on_peer) override;
  Result<std::unique_ptr<SecureSocket>> accept_blocking(const AcceptFunction& accept, TimePoint deadline) override;

 private:
  enum class Step { kWait, kDrop, kPeer };

  Status watch(int fd, std::uint64_t id);
  void accept_all(TimePoint now);
  Result<Fd> accept_one();
  void pause(TimePoint now, const Status& why);
  void wait_for_room();
  void resume(TimePoint now);
  bool make_room(TimePoint received_before, const std::string& why);
  Step advance(Stranger& stranger, const AcceptFunction& accept, std::string& why);
  Step judge(Stranger& stranger, const AcceptFunction& accept, std::string& why);
  void serve(std::uint64_t id, const AcceptFunction& accept, const PeerFunction& on_peer);
  void drop(std::map<std::uint64_t, Stranger>::iterator it, const std::string& why);
  void report(int fd, const std::string& why);
  void expire(TimePoint now);
  void set_timer();

  const JobKey key_;
  const Hello self_;
  const Log* const log_;
  bool unix_ = false;
  std::string address_text_;
  GuardedFd listener_;
  GuardedFd timer_;
  GuardedFd epoll_;
  std::uint64_t next_id_ = 2;
  std::map<std::uint64_t, Stranger> strangers_;  // in order of arrival
  std::optional<TimePoint> paused_until_;        // do not accept: descriptors have run out, or full_
  std::optional<Shortage> shortage_;
  bool short_ = false;      // there was a shortage before, and it was logged
  bool full_ = false;       // no room until a stranger leaves or has been silent for too long
  TimePoint now_;           // of the current progress()
  TimePoint silent_until_;  // log no line about strangers before
  std::size_t unreported_ = 0;
  std::deque<std::unique_ptr<SecureSocket>> peers_;  // only for accept_blocking
  std::vector<Fd> places_;                           // reserved; each makes room for one accepted connection
};

Status Listener::open(Fd listening, const Address& address) {
  listener_ = GuardedFd(std::move(listening));
  unix_ = address.kind == Address::Kind::kUnix;
  address_text_ = to_string(address);
  epoll_ = GuardedFd(Fd(::epoll_create1(EPOLL_CLOEXEC)));
  timer_ = GuardedFd(Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)));
  if (!epoll_.valid() || !timer_.valid()) return errno_status("a listener cannot be made", errno);
  DISTRUN_RETURN_IF_ERROR(watch(listener_.get(), kListenerId));
  return watch(timer_.get(), kTimerId);
}

Status Listener::watch(int fd, std::uint64_t id) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return errno_status("epoll_ctl failed", errno);
  return {};
}

void Listener::progress(TimePoint now, const AcceptFunction& accept, const PeerFunction& on_peer) {
  now_ = now;
  resume(now);
  bool newcomers = false;
  std::array<epoll_event, kEventsPerTurn> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
    if (id == kListenerId) {
      newcomers = true;
    } else if (id == kTimerId) {
      std::uint64_t times = 0;
      [[maybe_unused]] const ssize_t n = ::read(timer_.get(), &times, sizeof(times));
    } else {
      serve(id, accept, on_peer);
    }
  }
  expire(now);
  // Accept last: a stranger that has sent something by now is not silent, however late this turn is.
  if (newcomers) accept_all(now);
  resume(now);
  set_timer();
}

Result<std::unique_ptr<SecureSocket>> Listener::accept_blocking(const AcceptFunction& accept, TimePoint deadline) {
  for (;;) {
    // Further peers of the same turn wait in peers_ for the next call.
    progress(Clock::now(), accept, [this](std::unique_ptr<SecureSocket> peer) { peers_.push_back(std::move(peer)); });
    if (!peers_.empty()) {
      auto first = std::move(peers_.front());
      peers_.pop_front();
      return first;
    }
    if (shortage_ && now_ - shortage_->since >= kLastingShortage) {
      return shortage_->why.with_context("waiting for a peer on " + address_text_ + " (" + self_.purpose + ")");
    }
    if (const Status ready = wait_ready(epoll_.get(), POLLIN, deadline); !ready.ok()) {
      return ready.with_context("waiting for a peer on " + address_text_ + " (" + self_.purpose + ")");
    }
  }
}

void Listener::accept_all(TimePoint now) {
  for (std::size_t i = 0; i < kMaxStrangers; ++i) {
    // If there is no room, a peer waits in the kernel's backlog, which loses nothing.
    if (strangers_.size() >= kMaxStrangers && !make_room(now - kSilence, "too many others came while it was silent")) {
      return wait_for_room();
    }
    auto fd = accept_one();
    if (!fd.ok() && make_room(now - kSilence, "it was silent, and this process had no room for others")) continue;
    if (!fd.ok()) return pause(now, fd.status());
    if (!fd->valid()) return shortage_.reset();
    const std::uint64_t id = next_id_++;
    if (!watch(fd->get(), id).ok()) continue;
    strangers_.try_emplace(id, *std::move(fd), key_, self_, now);
  }
}

// Gives up one reserved place for each connection.
Result<Fd> Listener::accept_one() {
  auto fd = accept_stream(listener_.get());
  if (places_.empty()) return fd;
  if (!fd.ok()) {
    places_.pop_back();
    return accept_stream(listener_.get());
  }
  if (fd->valid()) places_.pop_back();
  return fd;
}

// Descriptors have run out. If the listening socket stayed readable, the owner would be busy for nothing.
void Listener::pause(TimePoint now, const Status& why) {
  if (log_ != nullptr && !short_) {
    log_->warning(address_text_ + named(self_.purpose) + ": " + why.message() +
                  ". New connections wait until there is room.");
  }
  short_ = true;
  if (!shortage_) shortage_ = {.since = now, .why = why};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
  paused_until_ = now + kRestAfterShortage;
}

void Listener::wait_for_room() {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
  full_ = true;
  paused_until_ = TimePoint::max();
  for (const auto& [id, stranger] : strangers_)
    paused_until_ = std::min(*paused_until_, stranger.last_message + kSilence);
}

void Listener::resume(TimePoint now) {
  const bool room = full_ && strangers_.size() < kMaxStrangers;
  if (!paused_until_ || (!room && *paused_until_ > now) || !watch(listener_.get(), kListenerId).ok()) return;
  paused_until_.reset();
  full_ = false;
}

// Drops the oldest stranger that has been silent since `received_before`. Strangers that have proved the key are
// dropped last. False: there is none.
bool Listener::make_room(TimePoint received_before, const std::string& why) {
  const auto silent = [&](const auto& item) { return item.second.last_message <= received_before; };
  auto it = std::find_if(strangers_.begin(), strangers_.end(),
                         [&](const auto& item) { return silent(item) && !item.second.handshake.key_proved(); });
  if (it == strangers_.end()) it = std::find_if(strangers_.begin(), strangers_.end(), silent);
  if (it == strangers_.end()) return false;
  drop(it, why);
  return true;
}

void Listener::serve(std::uint64_t id, const AcceptFunction& accept, const PeerFunction& on_peer) {
  const auto it = strangers_.find(id);
  if (it == strangers_.end()) return;  // dropped earlier in this turn
  std::string why;
  if (advance(it->second, accept, why) == Step::kDrop) return drop(it, why);
  if (it->second.handshake.state() != Handshake::State::kDone) return;
  Stranger& stranger = it->second;
  Hello peer = stranger.handshake.peer();
  if (const int pid = unix_ ? unix_peer_pid(stranger.fd.get()) : 0; pid > 0) peer.pid = pid;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stranger.fd.get(), nullptr);
  auto unsent = stranger.handshake.take_output();
  auto socket = std::make_unique<SecureStream>(stranger.fd.release(), stranger.handshake.take_session(),
                                               std::move(peer), std::move(unsent));
  strangers_.erase(it);
  shortage_.reset();
  (void)socket->flush();  // the owner gets an error again when it uses the socket
  // Call this now and not at the end of the turn, because `accept` may ask the owner if a rank has already come.
  on_peer(std::move(socket));
}

Listener::Step Listener::advance(Stranger& stranger, const AcceptFunction& accept, std::string& why) {
  std::array<std::byte, kMaxHandshakeMessage> buffer;
  while (stranger.handshake.state() == Handshake::State::kRunning) {
    const std::size_t missing = stranger.handshake.wanted() - stranger.received.size();
    const ssize_t n = ::recv(stranger.fd.get(), buffer.data(), std::min(missing, buffer.size()), MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return Step::kWait;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      // Without a difference it is not logged: the peer gave up, and a peer of this job connects again.
      why = stranger.handshake.difference();
      return Step::kDrop;
    }
    stranger.received.insert(stranger.received.end(), buffer.begin(), buffer.begin() + n);
    if (stranger.received.size() < stranger.handshake.wanted()) continue;
    const Status fed = stranger.handshake.feed(stranger.received);
    stranger.received.clear();
    stranger.last_message = now_;
    if (fed.ok() && stranger.handshake.state() == Handshake::State::kProved) return judge(stranger, accept, why);
    const auto output = stranger.handshake.take_output();
    // A new socket has room for these few hundred bytes. A peer that has filled it is not a peer of this job.
    const ssize_t sent = ::send(stranger.fd.get(), output.data(), output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (!fed.ok() || sent != static_cast<ssize_t>(output.size())) {
      why = fed.ok() ? "it does not read the answer" : fed.message();
      return Step::kDrop;
    }
  }
  return Step::kDrop;
}

Listener::Step Listener::judge(Stranger& stranger, const AcceptFunction& accept, std::string& why) {
  Hello peer = stranger.handshake.peer();
  if (const int pid = unix_ ? unix_peer_pid(stranger.fd.get()) : 0; pid > 0) peer.pid = pid;
  why = accept ? accept(peer) : std::string();
  stranger.handshake.decide(why);
  if (why.empty()) return Step::kPeer;
  stranger.refused = true;
  const auto output = stranger.handshake.take_output();
  ::send(stranger.fd.get(), output.data(), output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return Step::kDrop;
}

void Listener::drop(std::map<std::uint64_t, Stranger>::iterator it, const std::string& why) {
  if (!it->second.refused && !why.empty()) report(it->second.fd.get(), why);
  // Unread bytes would turn the close into a reset, and a reset can overtake the last message to the peer.
  std::array<std::byte, 4096> buffer;
  ::shutdown(it->second.fd.get(), SHUT_WR);
  ::recv(it->second.fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  strangers_.erase(it);
}

// Logs at most one line per second, whatever strangers do.
void Listener::report(int fd, const std::string& why) {
  ++unreported_;
  if (log_ == nullptr || now_ < silent_until_) return;
  std::string line =
      "refused a connection of " + remote_text(fd) + " to " + address_text_ + named(self_.purpose) + ": " + why;
  if (unreported_ > 1) line += " (and " + std::to_string(unreported_ - 1) + " more since the last such line)";
  log_->warning(line);
  unreported_ = 0;
  silent_until_ = now_ + kLogInterval;
}

void Listener::expire(TimePoint now) {
  while (!strangers_.empty() && strangers_.begin()->second.since + kHandshakeTime <= now) {
    drop(strangers_.begin(), "it did not prove that it belongs to the job within 5 s");
  }
}

// The timer makes fd() readable when the time of the oldest stranger is over, so the owner needs no timer.
void Listener::set_timer() {
  std::optional<TimePoint> next = paused_until_;
  if (!strangers_.empty())
    next = std::min(next.value_or(TimePoint::max()), strangers_.begin()->second.since + kHandshakeTime);
  itimerspec spec{};
  if (next) {
    // steady_clock is CLOCK_MONOTONIC. A time of zero would turn the timer off.
    const auto ns = std::max<long long>(std::chrono::nanoseconds(next->time_since_epoch()).count(), 1);
    spec.it_value = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
  }
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

}  // namespace

Result<std::unique_ptr<SecureSocket>> accept_or_news(SecureListener& listener,
                                                     const SecureListener::AcceptFunction& accept, TimePoint deadline,
                                                     const std::function<Status()>& news) {
  for (;;) {
    auto socket = listener.accept_blocking(accept, std::min(deadline, deadline_after(0.2)));
    if (socket.ok() || socket.status().code() != Errc::kTimeout || Clock::now() >= deadline) return socket;
    DISTRUN_RETURN_IF_ERROR(news());
  }
}

Result<std::unique_ptr<SecureListener>> listen_secure(const std::string& bind_address, const JobKey& key,
                                                      const Hello& self, const Log* log) {
  auto address = parse_address(bind_address);
  if (!address.ok()) return address.status();
  auto listening = listen_stream(*address);
  if (!listening.ok()) return listening.status();
  return listen_secure_on(*std::move(listening), to_string(*address), key, self, log);
}

Result<std::unique_ptr<SecureListener>> listen_secure_on(Fd listening, const std::string& address, const JobKey& key,
                                                         const Hello& self, const Log* log) {
  const auto parsed = parse_address(address);
  if (!parsed.ok()) return parsed.status();
  auto listener = std::make_unique<Listener>(key, self, log);
  DISTRUN_RETURN_IF_ERROR(listener->open(std::move(listening), *parsed));
  return std::unique_ptr<SecureListener>(std::move(listener));
}

}  // namespace distrun::net
