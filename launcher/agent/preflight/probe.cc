#include "launcher/agent/preflight/probe.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "launcher/plan/hosts/text.h"
#include "runtime/base/ended_link.h"
#include "runtime/net/bytes/ack_watch.h"
#include "runtime/net/bytes/socket.h"

namespace distrun::launcher {
namespace {

constexpr std::size_t kMaxCallers = 128;  // that have not proved that they know the key
constexpr std::size_t kMaxProved = 1024;  // limited, because a recorded question can be sent again
constexpr int kAcceptsPerTurn = 256;
// A listener with too many connection requests silently drops some. So a closed connection is tried again.
constexpr int kAttempts = 8;
// The number of small probes that follow a large message that does not move. At a loss of 10 % they all pass without a
// lost packet about once in a thousand times.
constexpr int kSmallProbes = 16;

std::string seconds_of(Duration duration) {
  const auto tenths = std::chrono::round<std::chrono::duration<int, std::deci>>(duration);
  return seconds_text(tenths.count() / 10.0) + " s";
}

// The buffer of a new socket has room for these few bytes.
bool send_all(int fd, std::span<const std::byte> bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

enum class Received { kAll, kWait, kGone };

// Continues to send the large message; `sent` is the number of bytes sent so far.
Received send_large(int fd, std::size_t& sent) {
  // One call for all of it, so that the kernel can fill its packets.
  const std::vector<std::byte> rest(kLargeProbe - sent);
  while (sent < kLargeProbe) {
    const ssize_t n = ::send(fd, rest.data(), kLargeProbe - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return Received::kWait;
    if (n < 0) return Received::kGone;
    sent += static_cast<std::size_t>(n);
  }
  return Received::kAll;
}

// Appends the bytes that have arrived to the first `received` bytes of `into`.
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

// The same for the large message, whose bytes are discarded.
Received receive_large(int fd, std::size_t& received) {
  std::array<std::byte, 4096> bytes;
  while (received < kLargeProbe) {
    std::size_t taken = 0;
    const std::size_t part = std::min(bytes.size(), kLargeProbe - received);
    const Received outcome = receive_into(fd, std::span(bytes).first(part), taken);
    received += taken;
    if (outcome != Received::kAll) return outcome;
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
    const bool sends = caller.proved && caller.received == kLargeProbe;
    poller.watch(caller.fd.get(), sends ? POLLOUT : POLLIN, [this, it = id](short) { serve(it); });
  }
}

// Drops the oldest caller that has not proved itself. If too many have proved themselves, drops the oldest of those.
void ProbeListener::make_room() {
  const auto proved = static_cast<std::size_t>(
      std::count_if(callers_.begin(), callers_.end(), [](const auto& one) { return one.second.proved; }));
  const bool crowded = proved >= kMaxProved;
  if (!crowded && callers_.size() - proved < kMaxCallers) return;
  const auto oldest =
      std::find_if(callers_.begin(), callers_.end(), [&](const auto& one) { return one.second.proved == crowded; });
  callers_.erase(oldest);
}

void ProbeListener::accept_all() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    auto fd = net::accept_stream(listening_.get());
    // Out of descriptors: the oldest caller is closed, and its descriptor is free for the next one. If there is no
    // caller, this is retried until the probes are over.
    if (!fd.ok() && !callers_.empty()) callers_.erase(callers_.begin());
    if (!fd.ok() || !fd->valid()) return;
    make_room();
    const std::size_t id = next_id_++;
    callers_.emplace(id, Caller{.fd = *std::move(fd), .question = {}});
    // Most callers have sent their question by now.
    serve(id);
  }
}

void ProbeListener::serve(std::size_t id) {
  const auto it = callers_.find(id);
  if (it == callers_.end()) return;
  if (!goes_on(it->second)) callers_.erase(it);
}

bool ProbeListener::goes_on(Caller& caller) const {
  if (!caller.proved) {
    const Received outcome = receive_into(caller.fd.get(), caller.question, caller.received);
    if (outcome != Received::kAll) return outcome == Received::kWait;
    const net::ProbeWords::Answer answer = words_->answer(caller.question, host_);
    caller.proved = send_all(caller.fd.get(), answer) && answer != net::ProbeWords::Answer{};
    caller.received = 0;
    if (!caller.proved) return false;
  }
  const Received outcome = receive_large(caller.fd.get(), caller.received);
  if (outcome != Received::kAll) return outcome == Received::kWait;
  return send_large(caller.fd.get(), caller.sent) == Received::kWait;
}

Prober::Prober(const net::JobKey& key, const ProbeSelf& self, std::vector<ProbeTarget> targets, ProbeLimits limits)
    : words_(key, self.job_id), self_(self.host), limits_(limits) {
  std::stable_sort(targets.begin(), targets.end(),
                   [](const ProbeTarget& a, const ProbeTarget& b) { return a.candidate < b.candidate; });
  waiting_.assign(std::make_move_iterator(targets.begin()), std::make_move_iterator(targets.end()));
}

void Prober::watch(Poller& poller) {
  for (auto& [id, connection] : connections_) {
    // A connection that waits for its turn is watched only for its end.
    const bool sends = !connection.question || (connection.large && connection.sent < kLargeProbe);
    const short events = sends ? POLLOUT : POLLIN;
    poller.watch(connection.fd.get(), events, [this, it = id](short) { ready(it); });
  }
}

std::optional<TimePoint> Prober::deadline() const {
  if (done()) return std::nullopt;
  if (!waiting_.empty() && connections_.size() < limits_.at_once) return TimePoint();
  TimePoint next = TimePoint::max();
  for (const auto& [id, connection] : connections_) next = std::min(next, connection.until);
  return waiting_.empty() ? next : std::min(next, *end_);
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
  go_on_with_proved(now);
}

// True if a better address of the same host may still answer.
bool Prober::has_better(const Connection& connection) const {
  const auto better = [&](const ProbeTarget& target) {
    return target.host == connection.target.host && target.candidate < connection.target.candidate;
  };
  return std::any_of(waiting_.begin(), waiting_.end(), better) ||
         std::any_of(connections_.begin(), connections_.end(),
                     [&](const auto& one) { return better(one.second.target); });
}

// Sends large messages only to the best address of each host that answers, because they take some time on a slow
// network.
void Prober::go_on_with_proved(TimePoint now) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    Connection& connection = it->second;
    if (!connection.proved || connection.large || has_better(connection)) {
      ++it;
      continue;
    }
    const bool reached = std::any_of(results_.begin(), results_.end(), [&](const ProbeResult& result) {
      return result.host == connection.target.host && result.failure.empty();
    });
    connection.large = true;
    connection.until = now + limits_.each / 2;
    connection.moved = moved_so_far(connection);
    // The kernel must not end the connection of a slow reader earlier.
    net::allow_slow_reader(connection.fd.get());
    Outcome outcome = reached ? Outcome(Ended{}) : move_large(connection);
    if (!outcome) {
      ++it;
      continue;
    }
    finish(connection.target, *std::move(outcome));
    it = connections_.erase(it);
  }
}

Prober::Outcome Prober::connect(Connection& connection) {
  if (++connection.attempts > kAttempts) {
    return Ended{.failure = "the connection is closed before any message", .link = LinkEnd::kClosed};
  }
  connection.question.reset();
  connection.received = 0;
  connection.proved = false;
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
  Connection& connection = it->second;
  Outcome outcome = !connection.question ? ask(connection)
                    : connection.large   ? move_large(connection)
                                         : receive(connection);
  if (connection.follows) {
    if (!receive_small(connection, outcome)) connections_.erase(it);
    return;
  }
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

Prober::Outcome Prober::move_large(Connection& connection) {
  Received outcome = send_large(connection.fd.get(), connection.sent);
  if (outcome == Received::kAll) outcome = receive_large(connection.fd.get(), connection.received);
  if (outcome == Received::kWait) return std::nullopt;
  if (outcome == Received::kAll) return Ended{};
  return Ended{.failure = "the connection ends when a large message is sent", .link = LinkEnd::kClosed};
}

Prober::Outcome Prober::receive(Connection& connection) const {
  if (connection.proved) return connect(connection);  // readable before its turn: the peer has closed it
  switch (receive_into(connection.fd.get(), connection.answer, connection.received)) {
    case Received::kWait:
      return std::nullopt;
    case Received::kGone:
      return connect(connection);
    case Received::kAll:
      break;
  }
  std::string failure = judge(connection);
  if (!failure.empty()) return Ended{.failure = std::move(failure)};
  connection.proved = true;
  connection.received = 0;
  return std::nullopt;
}

std::string Prober::judge(const Connection& connection) const {
  int host = 0;
  switch (words_.check(*connection.question, connection.answer, host)) {
    case net::ProbeWords::Reply::kRefusal:
      return "the other side belongs to another job: it refused the key or job id";
    case net::ProbeWords::Reply::kForeign:
      return "a program that does not belong to the job answers";
    case net::ProbeWords::Reply::kAnswer:
      break;
  }
  if (host == connection.target.host) return {};
  return std::string(host == self_ ? "this host itself" : "another host of the job") +
         " answers: several hosts have this address, as with container bridges";
}

void Prober::finish(const ProbeTarget& target, Ended how) {
  results_.push_back(
      {.host = target.host, .candidate = target.candidate, .failure = std::move(how.failure), .link = how.link});
}

bool Prober::receive_small(Connection& connection, const Outcome& outcome) {
  if (!outcome && !connection.proved) return true;
  const bool lost = outcome || net::has_retransmitted(connection.fd.get());
  if (!lost && ++connection.answers < kSmallProbes) {
    connection.attempts = 0;
    connection.until = Clock::now() + limits_.each / 2;
    if (!connect(connection)) return true;
  }
  record(*connection.follows, lost || connection.answers < kSmallProbes ? Small::kSomeLost : Small::kAllPass);
  return false;
}

void Prober::record(std::size_t large, Small small) {
  const auto it = connections_.find(large);
  if (it == connections_.end()) return;
  it->second.small = small;
  if (small == Small::kAllPass) it->second.until = TimePoint();  // it ends at the next progress()
}

std::uint64_t Prober::moved_so_far(const Connection& connection) {
  const auto facts = net::ack_facts(connection.fd.get());
  return connection.received + (facts ? facts->acknowledged : 0);
}

// A large message has more time while its bytes move. A connection whose turn has not come waits for the others.
bool Prober::moves(Connection& connection, TimePoint now) const {
  if (!connection.proved || now >= *end_ - limits_.all + limits_.large) return false;
  const std::uint64_t moved = moved_so_far(connection);
  if (connection.large && moved == std::exchange(connection.moved, moved)) return false;
  connection.small = Small::kUnknown;
  connection.until = now + (connection.large ? limits_.each / 2 : limits_.each);
  return true;
}

// A large message does not move. TCP sends lost packets again at longer and longer intervals, so it gets all the time
// for large messages if small packets are lost too.
bool Prober::asks_small(std::size_t id, Connection& connection, TimePoint now) {
  if (!connection.large || connection.small == Small::kAllPass) return false;
  if (connection.small != Small::kUnknown && now >= *end_ - limits_.all + limits_.large) return false;
  connection.until = now + limits_.each / 2;
  if (connection.small != Small::kUnknown) return true;
  Connection small{.target = connection.target, .since = now, .until = connection.until};
  small.follows = id;
  const bool asked = !connect(small);
  connection.small = asked ? Small::kAsked : Small::kSomeLost;
  if (asked) connections_.emplace(next_id_++, std::move(small));
  return true;
}

bool Prober::goes_on(std::size_t id, Connection& connection, TimePoint now) {
  if (!connection.follows) {
    return connection.until > now || moves(connection, now) || asks_small(id, connection, now);
  }
  if (!connections_.contains(*connection.follows)) return false;
  if (connection.until > now) return true;
  record(*connection.follows, Small::kSomeLost);
  return false;
}

Prober::Ended Prober::why_late(const Connection& connection) const {
  if (connection.small == Small::kAllPass) return {.failure = kLargeMessagesLost, .link = LinkEnd::kLargeSilent};
  if (connection.large) {
    const std::string small = connection.small == Small::kSomeLost ? "; small messages are lost too" : "";
    return {.failure = "a large message does not arrive" + small, .link = LinkEnd::kSilent};
  }
  const std::string waited = seconds_of(connection.until - connection.since);
  // The kernel has accepted the connection, so the process on the other side may only be slow.
  if (connection.question) return {.failure = "it accepts connections but has sent nothing for " + waited};
  return {.failure = "no answer within " + waited + ": the route is dead, or a firewall drops packets",
          .link = LinkEnd::kSilent};
}

void Prober::expire(TimePoint now) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    Connection& connection = it->second;
    if (goes_on(it->first, connection, now)) {
      ++it;
      continue;
    }
    if (!connection.follows) finish(connection.target, why_late(connection));
    it = connections_.erase(it);
  }
  if (now < *end_) return;
  for (const ProbeTarget& target : waiting_) {
    finish(target, {.failure = "not tried: the time for all probes (" + seconds_of(limits_.all) + ") was over"});
  }
  waiting_.clear();
}

}  // namespace distrun::launcher
