#include "launcher/agent/preflight/probe.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "launcher/plan/hosts/text.h"
#include "runtime/net/bytes/socket.h"

namespace distrun::launcher {
namespace {

constexpr std::size_t kMaxCallers = 128;
constexpr int kAcceptsPerTurn = 256;
// A listener that too many come to at once drops some without a word; that is worth another attempt.
constexpr int kAttempts = 8;

std::string seconds_of(Duration duration) {
  const auto tenths = std::chrono::round<std::chrono::duration<int, std::deci>>(duration);
  return seconds_text(tenths.count() / 10.0) + " s";
}

// A fresh socket has room for these few bytes.
bool send_all(int fd, std::span<const std::byte> bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

enum class Received { kAll, kWait, kGone };

// Adds what has come to the first `received` bytes of `into`.
Received receive_into(int fd, std::span<std::byte> into, std::size_t& received) {
  while (received < into.size()) {
    const ssize_t n = ::recv(fd, into.data() + received, into.size() - received, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return Received::kWait;
    if (n <= 0) return Received::kGone;
    received += static_cast<std::size_t>(n);
  }
  return Received::kAll;
}

}  // namespace

Result<ProbeListener> ProbeListener::open() {
  net::Address everywhere{.host = "*"};
  auto listening = net::listen_stream(everywhere);
  if (!listening.ok()) return listening.status();
  return ProbeListener(*std::move(listening), everywhere.port);
}

void ProbeListener::answer(const net::JobKey& key, const ProbeSelf& self) {
  DISTRUN_CHECK(words_ == nullptr, "a probe listener is told twice whose it is");
  words_ = std::make_unique<net::ProbeWords>(key, self.job_id);
  host_ = self.host;
}

void ProbeListener::watch(Poller& poller) {
  if (words_ == nullptr) return;
  poller.watch(listening_.get(), POLLIN, [this](short) { accept_all(); });
  for (const auto& [id, caller] : callers_) {
    poller.watch(caller.fd.get(), POLLIN, [this, it = id](short) { serve(it); });
  }
}

void ProbeListener::accept_all() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    auto fd = net::accept_stream(listening_.get());
    // Out of descriptors: the oldest gives its own to the next one. Where there is none, it is tried again until the
    // probes are over.
    if (!fd.ok() && !callers_.empty()) callers_.erase(callers_.begin());
    if (!fd.ok() || !fd->valid()) return;
    if (callers_.size() >= kMaxCallers) callers_.erase(callers_.begin());
    const std::size_t id = next_id_++;
    callers_.emplace(id, Caller{.fd = *std::move(fd), .question = {}});
    // Most have asked by now.
    serve(id);
  }
}

void ProbeListener::serve(std::size_t id) {
  const auto it = callers_.find(id);
  if (it == callers_.end()) return;
  Caller& caller = it->second;
  const Received outcome = receive_into(caller.fd.get(), caller.question, caller.received);
  if (outcome == Received::kWait) return;
  if (outcome == Received::kAll) send_all(caller.fd.get(), words_->answer(caller.question, host_));
  callers_.erase(it);
}

Prober::Prober(const net::JobKey& key, const ProbeSelf& self, std::vector<ProbeTarget> targets, ProbeLimits limits)
    : words_(key, self.job_id), self_(self.host), limits_(limits) {
  std::stable_sort(targets.begin(), targets.end(),
                   [](const ProbeTarget& a, const ProbeTarget& b) { return a.candidate < b.candidate; });
  waiting_.assign(std::make_move_iterator(targets.begin()), std::make_move_iterator(targets.end()));
}

void Prober::watch(Poller& poller) {
  for (auto& [id, connection] : connections_) {
    const short events = connection.question ? POLLIN : POLLOUT;
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
  if (++connection.attempts > kAttempts) {
    return Ended{.failure = "the connection is closed before anything is said", .link = LinkEnd::kClosed};
  }
  connection.question.reset();
  connection.received = 0;
  const auto address = net::parse_address(connection.target.address);
  if (!address.ok()) return Ended{.failure = address.status().message()};
  auto fd = net::begin_connect(*address);
  if (!fd.ok()) return Ended{.failure = fd.status().message(), .link = fd.status().info().link};
  connection.fd = *std::move(fd);
  return std::nullopt;
}

void Prober::ready(std::size_t id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  Outcome outcome = it->second.question ? receive(it->second) : ask(it->second);
  if (!outcome) return;
  finish(it->second.target, *std::move(outcome));
  connections_.erase(it);
}

Prober::Outcome Prober::ask(Connection& connection) const {
  if (const Status connected = net::finish_connect(connection.fd.get()); !connected.ok()) {
    return Ended{.failure = connected.message(), .link = connected.info().link};
  }
  connection.question = words_.question(self_, connection.target.host);
  return send_all(connection.fd.get(), *connection.question) ? std::nullopt : connect(connection);
}

Prober::Outcome Prober::receive(Connection& connection) const {
  switch (receive_into(connection.fd.get(), connection.answer, connection.received)) {
    case Received::kWait:
      return std::nullopt;
    case Received::kGone:
      return connect(connection);
    case Received::kAll:
      break;
  }
  return Ended{.failure = judge(connection)};
}

std::string Prober::judge(const Connection& connection) const {
  int host = 0;
  switch (words_.hear(*connection.question, connection.answer, host)) {
    case net::ProbeWords::Heard::kRefusal:
      return "the other side refused this process's key or job id: it belongs to another job";
    case net::ProbeWords::Heard::kNonsense:
      return "what answers there does not belong to the job";
    case net::ProbeWords::Heard::kAnswer:
      break;
  }
  if (host == connection.target.host) return {};
  return std::string(host == self_ ? "this host itself" : "another host of the job") +
         " answers there: several hosts have this address, as those of container bridges";
}

void Prober::finish(const ProbeTarget& target, Ended how) {
  results_.push_back(
      {.host = target.host, .candidate = target.candidate, .failure = std::move(how.failure), .link = how.link});
}

void Prober::expire(TimePoint now) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const Connection& connection = it->second;
    if (connection.until > now) {
      ++it;
      continue;
    }
    const std::string waited = seconds_of(connection.until - connection.since);
    // Who is only slow has its kernel take connections.
    finish(connection.target,
           connection.question
               ? Ended{.failure = "it takes connections but has said nothing for " + waited}
               : Ended{.failure = "a dead route, or a firewall drops packets: no answer within " + waited,
                       .link = LinkEnd::kSilent});
    it = connections_.erase(it);
  }
  if (now < *end_) return;
  for (const ProbeTarget& target : waiting_) {
    finish(target, {.failure = "not tried: the " + seconds_of(limits_.all) + " for all probes were over"});
  }
  waiting_.clear();
}

}  // namespace distrun::launcher
