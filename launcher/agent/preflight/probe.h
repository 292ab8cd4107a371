// Finds out whether the hosts reach each other. Each host listens on all its addresses and connects to those of the
// others. A connection is valid when both ends have proved that they have the job's key
// (runtime/net/secure/probe_words.h) and the right host has answered. An address that every host has (a container
// bridge's) fails this check. Then each end sends more bytes than one packet holds at any MTU, because a path may drop
// large packets and pass small ones. If the large message stops moving, many small ones follow. Only if all of these
// pass at once is the MTU at fault. Runs in a Poller's loop without threads: call watch(), wait until deadline(), then
// call progress().
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

// This host's number in the job, and the job. The head's number is kHeadHost.
struct ProbeSelf {
  int host = kHeadHost;
  std::string job_id;
};

// More than one packet can hold. The largest MTU is 65,536, that of loopback.
inline constexpr std::size_t kLargeProbe = std::size_t{66} << 10;

// Callers without the key cost at most 128 descriptors. If more come, the oldest silent one is closed. The listener is
// closed when the time limit of the job's probes has passed. Callers that have proved themselves are kept.
class ProbeListener {
 public:
  // Listens on all addresses of this host, at a free port. Callers wait until answer() is called.
  static Result<ProbeListener> open();
  [[nodiscard]] std::uint16_t port() const { return port_; }
  // From now on, questions of this job are answered with this host's number, and all others are refused.
  void answer(const net::JobKey& key, const ProbeSelf& self);
  void watch(Poller& poller);

 private:
  struct Caller {
    Fd fd;
    net::ProbeWords::Question question;
    std::size_t received = 0;  // bytes of the question, then of the large message
    std::size_t sent = 0;      // bytes of the large message
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
  std::unique_ptr<net::ProbeWords> words_;  // set by answer()
  std::size_t next_id_ = 0;
  std::map<std::size_t, Caller> callers_;  // in order of arrival
};

// A dead route drops a connect without an answer, so everything has a time limit.
struct ProbeLimits {
  Duration each = std::chrono::seconds(3);
  Duration all = std::chrono::seconds(8);     // limit for all probes, unless large messages still move
  Duration large = std::chrono::seconds(25);  // limit for all, including large messages
  std::size_t at_once = 64;
};

class Prober {
 public:
  // Tries the best address of every target first. Nothing happens before progress().
  Prober(const net::JobKey& key, const ProbeSelf& self, std::vector<ProbeTarget> targets, ProbeLimits limits = {});
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  void watch(Poller& poller);
  // When progress() is due if nothing else happens. A time in the past: now.
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  // Ends the connections that took too long and starts the next ones.
  void progress(TimePoint now);
  [[nodiscard]] bool done() const { return waiting_.empty() && connections_.empty(); }
  // One result for each target, in the order of their ends. Call it once, after done().
  std::vector<ProbeResult> take_results() { return std::move(results_); }

 private:
  // What the small probes showed that follow a large message that does not move.
  enum class Small : std::uint8_t { kUnknown, kAsked, kAllPass, kSomeLost };
  struct Connection {
    ProbeTarget target;
    TimePoint since;
    TimePoint until;
    int attempts = 0;
    Fd fd;
    std::optional<net::ProbeWords::Question> question;  // set once it has been sent
    net::ProbeWords::Answer answer{};
    std::size_t received = 0;  // bytes of the answer, then of the large message
    bool proved = false;       // the right host has answered
    bool large = false;        // the large message is being sent
    std::size_t sent = 0;      // bytes of the large message
    std::uint64_t moved = 0;   // bytes of it that had moved at the last check
    Small small = Small::kUnknown;
    // Set if this connection is such a small probe: the number of the connection with the large message.
    std::optional<std::size_t> follows{};
    int answers = 0;  // of the small probes so far
  };
  struct Ended {
    std::string failure;  // empty: reached
    LinkEnd link = LinkEnd::kUnknown;
  };
  // Nothing while the connection continues.
  using Outcome = std::optional<Ended>;

  [[nodiscard]] static Outcome connect(Connection& connection);
  [[nodiscard]] Outcome ask(Connection& connection) const;
  [[nodiscard]] Outcome receive(Connection& connection) const;
  [[nodiscard]] static Outcome move_large(Connection& connection);
  [[nodiscard]] std::string judge(const Connection& connection) const;
  void ready(std::size_t id);
  void finish(const ProbeTarget& target, Ended how);
  // True: the connection still asks.
  bool receive_small(Connection& connection, const Outcome& outcome);
  void record(std::size_t large, Small small);
  // True: the connection with the large message has more time.
  bool asks_small(std::size_t id, Connection& connection, TimePoint now);
  // True: the time of this connection is not over.
  bool goes_on(std::size_t id, Connection& connection, TimePoint now);
  void go_on_with_proved(TimePoint now);
  [[nodiscard]] bool has_better(const Connection& connection) const;
  static std::uint64_t moved_so_far(const Connection& connection);
  [[nodiscard]] bool moves(Connection& connection, TimePoint now) const;
  [[nodiscard]] Ended why_late(const Connection& connection) const;
  void expire(TimePoint now);

  const net::ProbeWords words_;
  const int self_;
  const ProbeLimits limits_;
  std::deque<ProbeTarget> waiting_;
  std::optional<TimePoint> end_;  // of all probes
  std::size_t next_id_ = 0;
  std::map<std::size_t, Connection> connections_;
  std::vector<ProbeResult> results_;
};

}  // namespace distrun::launcher
