// Small messages between the leader (member 0) and the other members of one group: what agreement needs.
// For the holder of the progress token only. FIFO per ordered pair; nothing blocks; a message is at most 16 MiB.
// Members talk to the leader and the leader to all; members do not talk to each other. A tree between hosts is an
// implementation of this interface, not a change to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/ended_link.h"
#include "runtime/base/status.h"

namespace distrun::net {

struct Received {
  int from = -1;  // member index
  std::vector<std::byte> bytes;
};

// Bytes that peers have still to take, but for those that may go.
struct Queued {
  std::size_t most = 0;  // of any one
  std::size_t all = 0;   // of all together

  void add(std::size_t of_one) {
    most = std::max(most, of_one);
    all += of_one;
  }
};

class ControlPlane {
 public:
  virtual ~ControlPlane() = default;
  [[nodiscard]] virtual int rank() const = 0;  // member index of this process
  [[nodiscard]] virtual int size() const = 0;

  // Queues a message; `to` is 0, or anybody when this member is the leader.
  virtual Status send(int to, std::span<const std::byte> message) = 0;
  // Leader only: the same message to all other members.
  virtual Status broadcast(std::span<const std::byte> message) = 0;
  // Takes the next message that has arrived, from any member, if there is one.
  virtual bool receive(Received& out) = 0;
  // Moves queued bytes; true if anything moved.
  virtual bool progress() = 0;
  // True while messages queued here have not been handed to the peer yet.
  [[nodiscard]] virtual bool pending() const = 0;
  // How much of it there is.
  [[nodiscard]] virtual Queued queued() const = 0;
  // Leader only: `member` has left in good order. The end of its connection is no loss, and what it does not read any
  // more is dropped.
  virtual void may_go(int member) = 0;
  // The first connection that ended, if any, but for those of members that may go. Only the leader sees every member;
  // members see the leader.
  [[nodiscard]] virtual std::optional<EndedLink> lost() const = 0;
};

}  // namespace distrun::net
