// Do the hosts reach each other? Each listens on all its addresses and connects to those of the others; a connection
// counts when both ends have shown the job's key (runtime/net/secure/probe_words.h) and the right host has answered,
// which an address that every host has (a container bridge's) does not bring about. Then each end sends the other more
// than one packet holds, whatever the MTU: a path may drop large packets and pass small ones. For a Poller's loop,
// without threads: watch(), wait until deadline(), progress().
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/network/network.h"
#include "launcher/spawn/poller.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/secure/probe_words.h"

namespace distrun::launcher {

// Which host of which job this is; kHeadHost for the head.
struct ProbeSelf {
  int host = kHeadHost;
  std::string job_id;
};

// More than fits into one packet anywhere: the MTU of loopback is 65,536, and no other one is larger.
inline constexpr std::size_t kLargeProbe = std::size_t{66} << 10;

// Strangers cost it 128 descriptors at most, the oldest silent one making room for a newcomer, and no more time than
// the probes of a job may take: then it is closed. Who has proved itself is kept.
class ProbeListener {
 public:
  // On all addresses of this host, at a free port. Whoever connects waits for answer().
  static Result<ProbeListener> open();
  [[nodiscard]] std::uint16_t port() const { return port_; }
  // From now on questions of this job are answered with this host's number, all others turned away.
  void answer(const net::JobKey& key, const ProbeSelf& self);
  void watch(Poller& poller);

 private:
  struct Caller {
    Fd fd;
    net::ProbeWords::Question question;
    std::size_t received = 0;  // of the question; then of what is large
    std::size_t sent = 0;      // of what is large
    bool proved = false;
  };

  ProbeListener(Fd listening, std::uint16_t port) : listening_(std::move(listening)), port_(port) {}

  void accept_all();
  void make_room();
  void serve(std::size_t id);
  [[nodiscard]] bool goes_on(Caller& caller) const;

  Fd listening_;
  std::uint16_t port_;
  int host_ = kHeadHost;
  std::unique_ptr<net::ProbeWords> words_;  // once answer() has told whose it is
  std::size_t next_id_ = 0;
  std::map<std::size_t, Caller> callers_;  // in order of arrival
};

// A connect to a dead route is swallowed without an answer, so everything has an end.
struct ProbeLimits {
  Duration each = std::chrono::seconds(3);
  Duration all = std::chrono::seconds(8);     // what has not ended by then has failed, unless large messages still move
  Duration large = std::chrono::seconds(25);  // the same for all of it
  std::size_t at_once = 64;
};

class Prober {
 public:
  // The best addresses of all targets are tried first. Nothing happens before progress().
  Prober(const net::JobKey& key, const ProbeSelf& self, std::vector<ProbeTarget> targets, ProbeLimits limits = {});
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
    std::optional<net::ProbeWords::Question> question;  // once it has been asked
    net::ProbeWords::Answer answer{};
    std::size_t received = 0;  // of the answer; then of what is large
    bool proved = false;       // the right host has answered
    bool large = false;        // what is large is under way
    std::size_t sent = 0;      // of it
    std::uint64_t moved = 0;   // bytes of it that had moved when it was looked at last
  };
  // Nothing while it goes on; why it has failed, or an empty text: reached.
  using Outcome = std::optional<std::string>;

  [[nodiscard]] static Outcome connect(Connection& connection);
  [[nodiscard]] Outcome ask(Connection& connection) const;
  [[nodiscard]] Outcome receive(Connection& connection) const;
  [[nodiscard]] static Outcome move_large(Connection& connection);
  [[nodiscard]] std::string judge(const Connection& connection) const;
  void ready(std::size_t id);
  void finish(const ProbeTarget& target, std::string failure);
  void go_on_with_proved(TimePoint now);
  [[nodiscard]] bool has_better(const Connection& connection) const;
  static std::uint64_t moved_so_far(const Connection& connection);
  [[nodiscard]] bool moves(Connection& connection, TimePoint now) const;
  [[nodiscard]] std::string why_late(const Connection& connection) const;
  void expire(TimePoint now);

  const net::ProbeWords words_;
  const int self_;
  const ProbeLimits limits_;
  std::deque<ProbeTarget> waiting_;
  std::optional<TimePoint> end_;  // of all
  std::size_t next_id_ = 0;
  std::map<std::size_t, Connection> connections_;
  std::vector<ProbeResult> results_;
};

}  // namespace distrun::launcher
