// Moves small messages between the leader (member 0) and the other members of one group, for agreement. Only the holder
// of the progress token uses it. Messages between two members keep their order. Nothing blocks. A message has at most
// 16 MiB. Members exchange messages with the leader only, never with each other. A tree between hosts would be another
// implementation of this interface.
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

// Bytes that are queued for peers and not yet handed over. Members that may leave are not counted.
struct Queued {
  std::size_t most = 0;  // the largest number for one peer
  std::size_t all = 0;   // the sum over all peers

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

  // Queues a message. `to` is 0 on a member, and any other member on the leader.
  virtual Status send(int to, std::span<const std::byte> message) = 0;
  // Leader only: sends the message to all other members.
  virtual Status broadcast(std::span<const std::byte> message) = 0;
  // Takes the next message that has arrived from any member. False if there is none.
  virtual bool receive(Received& out) = 0;
  // Moves queued bytes. True if anything moved.
  virtual bool progress() = 0;
  // True while queued messages have not been handed to their peers.
  [[nodiscard]] virtual bool pending() const = 0;
  // The amount of these messages.
  [[nodiscard]] virtual Queued queued() const = 0;
  // Leader only: `member` has left in good order. The end of its connection is then not a loss, and messages that it
  // does not read are dropped.
  virtual void may_go(int member) = 0;
  // The first connection that ended, except those of members that may leave. Only the leader sees all members. A member
  // sees the leader only.
  [[nodiscard]] virtual std::optional<EndedLink> lost() const = 0;
};

}  // namespace distrun::net
