// Do the hosts reach each other? Each listens on all its addresses and connects to those of the others; a connection
// counts when both ends have shown the job's key and the right host has answered, which an address that every host has
// (a container bridge's) does not bring about. For a Poller's loop, without threads: watch(), wait until deadline(),
// progress().
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/network.h"
#include "launcher/spawn/poller.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/net/handshake.h"
#include "runtime/net/secure_socket.h"
#include "runtime/net/world.h"

namespace distrun::launcher {

// Which host of which job this is. In the Hello of a probe both ends are numbers of hosts, kHeadHost for the head.
struct ProbeSelf {
  int host = kHeadHost;
  std::string job_id;
};

class ProbeListener {
 public:
  // On all addresses of this host, at a free port. Whoever connects waits for answer().
  static Result<ProbeListener> open();
  [[nodiscard]] std::uint16_t port() const { return port_; }
  // From now on probes of this job that are meant for this host are answered, all others turned away.
  Status answer(const net::JobKey& key, const ProbeSelf& self);
  void watch(Poller& poller);

 private:
  ProbeListener(Fd listening, std::uint16_t port) : listening_(std::move(listening)), port_(port) {}

  Fd listening_;  // until answer()
  std::uint16_t port_;
  std::unique_ptr<net::SecureListener> listener_;
};

// A connect to a dead route is swallowed without an answer, so everything has an end.
struct ProbeLimits {
  Duration each = std::chrono::seconds(3);
  Duration all = std::chrono::seconds(8);  // what has not ended by then has failed
  std::size_t at_once = 64;
};

class Prober {
 public:
  // The best addresses of all targets are tried first. Nothing happens before progress().
  Prober(const net::JobKey& key, ProbeSelf self, std::vector<ProbeTarget> targets, ProbeLimits limits = {});
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  void watch(Poller& poller);
  // When progress() is due if nothing else happens; a time in the past when it is now.
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  // Ends what has taken too long, begins what is next.
  void progress(TimePoint now);
  [[nodiscard]] bool done() const { return waiting_.empty() && connections_.empty(); }
  // One for each target, in the order in which they ended; once, after done().
  std::vector<ProbeResult> take_results() { return std::move(results_); }

 private:
  struct Connection {
    ProbeTarget target;
    TimePoint since;
    TimePoint until;
    int attempts = 0;
    Fd fd;
    std::unique_ptr<net::Handshake> handshake;  // once connected
    std::vector<std::byte> received;
  };
  // Nothing while it goes on; why it has failed, or an empty text: reached.
  using Outcome = std::optional<std::string>;

  [[nodiscard]] static Outcome connect(Connection& connection);
  [[nodiscard]] Outcome start_handshake(Connection& connection) const;
  [[nodiscard]] Outcome receive(Connection& connection) const;
  [[nodiscard]] std::string refusal(const Connection& connection, const Status& status) const;
  void ready(std::size_t id);
  void finish(const ProbeTarget& target, std::string failure);
  void expire(TimePoint now);

  const net::JobKey key_;
  const ProbeSelf self_;
  const ProbeLimits limits_;
  std::deque<ProbeTarget> waiting_;
  std::optional<TimePoint> end_;  // of all
  std::size_t next_id_ = 0;
  std::map<std::size_t, Connection> connections_;
  std::vector<ProbeResult> results_;
};

}  // namespace distrun::launcher
