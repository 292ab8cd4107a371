#include "launcher/agent/probe.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/plan/text.h"
#include "runtime/net/socket.h"

namespace distrun::launcher {
namespace {

constexpr const char* kPurpose = "probe";
// A listener that too many come to at once drops some without a word; that is worth another attempt.
constexpr int kAttempts = 8;

std::string seconds_of(Duration duration) {
  const auto tenths = std::chrono::round<std::chrono::duration<int, std::deci>>(duration);
  return seconds_text(tenths.count() / 10.0) + " s";
}

// A fresh socket has room for these few hundred bytes.
bool send_all(int fd, const std::vector<std::byte>& bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

Result<ProbeListener> ProbeListener::open() {
  net::Address everywhere{.host = "*"};
  auto listening = net::listen_stream(everywhere);
  if (!listening.ok()) return listening.status();
  return ProbeListener(*std::move(listening), everywhere.port);
}

Status ProbeListener::answer(const net::JobKey& key, const ProbeSelf& self) {
  DISTRUN_CHECK(listening_.valid(), "a probe listener is told twice whose it is");
  const net::Hello hello{.purpose = kPurpose, .job_id = self.job_id, .from = self.host};
  auto listener = net::listen_secure_on(std::move(listening_), "*:" + std::to_string(port_), key, hello);
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);
  return {};
}

void ProbeListener::watch(Poller& poller) {
  if (listener_ == nullptr) return;
  poller.watch(listener_->fd(), POLLIN, [this](short) {
    // Who comes this far has been answered, which is all that it wants.
    listener_->progress(Clock::now(), {}, [](const std::unique_ptr<net::SecureSocket>&) {});
  });
}

Prober::Prober(const net::JobKey& key, ProbeSelf self, std::vector<ProbeTarget> targets, ProbeLimits limits)
    : key_(key), self_(std::move(self)), limits_(limits) {
  std::stable_sort(targets.begin(), targets.end(),
                   [](const ProbeTarget& a, const ProbeTarget& b) { return a.candidate < b.candidate; });
  waiting_.assign(std::make_move_iterator(targets.begin()), std::make_move_iterator(targets.end()));
}

void Prober::watch(Poller& poller) {
  for (auto& [id, connection] : connections_) {
    const short events = connection.handshake ? POLLIN : POLLOUT;
    poller.watch(connection.fd.get(), events, [this, it = id](short) { ready(it); });
  }
}

std::optional<TimePoint> Prober::deadline() const {
  if (done()) return std::nullopt;
  if (!waiting_.empty() && connections_.size() < limits_.at_once) return TimePoint();
  TimePoint next = *end_;
  for (const auto& [id, connection] : connections_) next = std::min(next, connection.until);
  return next;
}

void Prober::progress(TimePoint now) {
  if (!end_) end_ = now + limits_.all;
  expire(now);
  while (!waiting_.empty() && connections_.size() < limits_.at_once) {
    Connection connection{
        .target = std::move(waiting_.front()), .since = now, .until = std::min(now + limits_.each, *end_)};
    waiting_.pop_front();
    if (Outcome outcome = connect(connection)) {
      finish(connection.target, *std::move(outcome));
    } else {
      connections_.emplace(next_id_++, std::move(connection));
    }
  }
}

Prober::Outcome Prober::connect(Connection& connection) {
  if (++connection.attempts > kAttempts) return "the connection is closed before anything is said";
  connection.handshake.reset();
  connection.received.clear();
  const auto address = net::parse_address(connection.target.address);
  if (!address.ok()) return address.status().message();
  auto fd = net::begin_connect(*address);
  if (!fd.ok()) return fd.status().message();
  connection.fd = *std::move(fd);
  return std::nullopt;
}

void Prober::ready(std::size_t id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  Outcome outcome = it->second.handshake ? receive(it->second) : start_handshake(it->second);
  if (!outcome) return;
  finish(it->second.target, *std::move(outcome));
  connections_.erase(it);
}

Prober::Outcome Prober::start_handshake(Connection& connection) const {
  if (const Status connected = net::finish_connect(connection.fd.get()); !connected.ok()) return connected.message();
  const net::Hello hello{.purpose = kPurpose, .job_id = self_.job_id, .from = self_.host, .to = connection.target.host};
  connection.handshake = std::make_unique<net::Handshake>(net::NoiseHandshake::Role::kInitiator, key_, hello);
  return send_all(connection.fd.get(), connection.handshake->take_output()) ? std::nullopt : connect(connection);
}

Prober::Outcome Prober::receive(Connection& connection) const {
  net::Handshake& handshake = *connection.handshake;
  std::array<std::byte, net::kMaxHandshakeMessage> buffer;
  while (handshake.state() == net::Handshake::State::kRunning) {
    const std::size_t missing = handshake.wanted() - connection.received.size();
    const ssize_t n = ::recv(connection.fd.get(), buffer.data(), std::min(missing, buffer.size()), MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return std::nullopt;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return connect(connection);
    connection.received.insert(connection.received.end(), buffer.begin(), buffer.begin() + n);
    if (connection.received.size() < handshake.wanted()) continue;
    const Status fed = handshake.feed(connection.received);
    connection.received.clear();
    if (!fed.ok()) return refusal(connection, fed);
    if (!send_all(connection.fd.get(), handshake.take_output())) return connect(connection);
  }
  return std::string();
}

std::string Prober::refusal(const Connection& connection, const Status& status) const {
  const net::Handshake& handshake = *connection.handshake;
  if (!handshake.key_proved() || handshake.peer().from == connection.target.host) return status.message();
  const bool self = handshake.peer().from == self_.host;
  return std::string(self ? "this host itself" : "another host of the job") +
         " answers there: several hosts have this address, as those of container bridges";
}

void Prober::finish(const ProbeTarget& target, std::string failure) {
  results_.push_back({.host = target.host, .candidate = target.candidate, .failure = std::move(failure)});
}

void Prober::expire(TimePoint now) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const Connection& connection = it->second;
    if (connection.until > now) {
      ++it;
      continue;
    }
    finish(connection.target, (connection.handshake ? "it takes connections but has said nothing for "
                                                    : "a dead route, or a firewall drops packets: no answer within ") +
                                  seconds_of(connection.until - connection.since));
    it = connections_.erase(it);
  }
  if (now < *end_) return;
  for (const ProbeTarget& target : waiting_) {
    finish(target, "not tried: the " + seconds_of(limits_.all) + " for all probes were over");
  }
  waiting_.clear();
}

}  // namespace distrun::launcher
