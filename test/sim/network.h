// The control plane of all virtual ranks: ordered per pair, with random delays; senders may be held up, ranks may die.
// As with sockets, what a rank sent before its end can still arrive, and the end is seen after it.
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
  bool wakes = true;  // false: it lies there, and the receiver sleeps on
};

// Sees all that passes.
class Witness {
 public:
  virtual ~Witness() = default;
  virtual void sent(int from, const std::vector<std::byte>& bytes) = 0;  // a broadcast once
  virtual void received(int to, const std::vector<std::byte>& bytes) = 0;
};

struct NetworkOptions {
  int size = 1;
  Duration most_delay{};
  int congestion = 0;      // per cent of sends after which a rank can send nothing for a while
  std::size_t weight = 1;  // of a byte: what waits to be sent counts as so much more, as with so many more of it
};

class Network {
 public:
  Network(NetworkOptions options, Scheduler& scheduler, Random random, std::function<void(int rank)> wake);

  std::unique_ptr<net::ControlPlane> plane(int rank);  // the network outlives it
  void watch(Witness* witness) { witness_ = witness; }
  // May change what passes: for mutants.
  void tamper(std::function<void(Passing&)> tamper) { tamper_ = std::move(tamper); }

  [[nodiscard]] long sent() const { return sent_; }  // messages, by all ranks
  [[nodiscard]] long held() const { return held_; }  // looks of the leader at more than it may send
  void kill(int rank);                               // what is under way from it may be lost
  void leave(int rank);                              // what is under way from it arrives
  void clear(int rank) { at(rank).held_until = TimePoint{}; }

 private:
  friend class SimControlPlane;
  struct Rank {
    std::deque<std::pair<int, Bytes>> inbox;
    std::deque<std::pair<int, Bytes>> outbox;  // destination, message
    TimePoint held_until;                      // nothing leaves the outbox before
    TimePoint up;                              // when the last message to the leader arrives
    TimePoint down;                            // when the last one from the leader arrives
    TimePoint cut = TimePoint::max();          // what it sent and has not arrived by then is lost
    bool gone = false;
    bool may_go = false;
    bool ended = false;  // its connection, as the leader sees it
    bool alone = false;  // its connection to the leader, as it sees it
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
  std::vector<int> missed_;  // by the leader: ended, and may not go; in order
};

}  // namespace distrun::sim
