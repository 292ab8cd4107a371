// The control plane of all virtual ranks. Messages keep their order per pair and have random delays. Senders may be
// blocked for a time, and ranks may die. As with sockets, messages that a rank sent before its end can still arrive.
// Its peers notice the end after them.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/net/control/control_plane.h"
#include "test/sim/random.h"
#include "test/sim/scheduler.h"

namespace distrun::sim {

using Bytes = std::shared_ptr<const std::vector<std::byte>>;

// One message to one rank.
struct Passing {
  int from = -1;
  int to = -1;
  Bytes bytes;
  bool arrives = true;
  bool wakes = true;  // false: the message stays in the inbox and the receiver sleeps on
};

// Sees every message on the network.
class Witness {
 public:
  virtual ~Witness() = default;
  virtual void sent(int from, const std::vector<std::byte>& bytes) = 0;  // called once for a broadcast
  virtual void received(int to, const std::vector<std::byte>& bytes) = 0;
};

struct NetworkOptions {
  int size = 1;
  Duration most_delay{};
  int congestion = 0;      // per cent of sends after which a rank can send nothing for some time
  std::size_t weight = 1;  // a queued byte counts as this many bytes, to simulate large messages
};

class Network {
 public:
  Network(NetworkOptions options, Scheduler& scheduler, Random random, std::function<void(int rank)> wake);

  std::unique_ptr<net::ControlPlane> plane(int rank);  // the network must outlive the plane
  void watch(Witness* witness) { witness_ = witness; }
  // Installs a callback that may change messages. Mutants use it.
  void tamper(std::function<void(Passing&)> tamper) { tamper_ = std::move(tamper); }

  [[nodiscard]] long sent() const { return sent_; }  // messages sent by all ranks
  [[nodiscard]] long held() const { return held_; }  // how often the leader found too many bytes queued
  void kill(int rank);                               // its messages under way may be lost
  void leave(int rank);                              // its messages under way still arrive
  void clear(int rank) { at(rank).held_until = TimePoint{}; }

 private:
  friend class SimControlPlane;
  struct Rank {
    std::deque<std::pair<int, Bytes>> inbox;
    std::deque<std::pair<int, Bytes>> outbox;  // destination, message
    TimePoint held_until;                      // until then nothing leaves the outbox
    TimePoint up;                              // when its last message to the leader arrives
    TimePoint down;                            // when the leader's last message to it arrives
    TimePoint cut = TimePoint::max();          // its messages that have not arrived by then are lost
    bool gone = false;
    bool may_go = false;
    bool ended = false;  // the leader has noticed the end of its connection
    bool alone = false;  // it has noticed the end of its connection to the leader
  };
  [[nodiscard]] Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  void may_go(int rank);
  TimePoint& last_arrival(int from, int to) { return from == 0 ? at(to).down : at(from).up; }
  [[nodiscard]] net::Queued queued(int rank);
  bool progress(int rank);
  void hand_over(int from, int to, Bytes bytes);
  void end(int rank, TimePoint not_before);

  const NetworkOptions options_;
  Scheduler& scheduler_;
  Random random_;
  const std::function<void(int)> wake_;
  Witness* witness_ = nullptr;
  std::function<void(Passing&)> tamper_;
  std::vector<Rank> ranks_;
  long sent_ = 0;
  long held_ = 0;
  std::vector<int> missed_;  // ranks whose loss the leader has noticed and that may not go; in order
};

}  // namespace distrun::sim
