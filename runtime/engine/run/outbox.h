// The engine's outgoing messages. They are collected until the end of the loop's turn and then sent in few frames. Only
// the token holder may use this.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/protocol/messages.h"
#include "runtime/net/control/control_plane.h"

namespace distrun::engine {

class Outbox {
 public:
  explicit Outbox(net::ControlPlane* plane) : plane_(plane) {}  // null in a job of one rank: there is no peer

  // Member: messages to the leader. The caller appends them in the order of their events.
  std::vector<Message>& to_leader() { return to_leader_; }
  // Leader: entries for all, in log order, and messages for one member (-1: all members).
  void append(std::vector<Entry> entries);
  void queue(int to, Message message);

  // Member: number of entries read so far. Each frame carries it. Messages that are already collected come from before
  // that, so they keep the number that was true then.
  void set_index(std::uint64_t index) {
    read_ = index;
    if (to_leader_.empty()) index_ = index;
  }
  [[nodiscard]] bool empty() const { return to_leader_.empty() && entries_.empty() && messages_.empty(); }
  // Hands everything to the control plane. Does not block.
  Status flush();
  // The same, and lets the control plane make progress. True if anything moved. An error is kept for take_failure().
  bool send();
  [[nodiscard]] bool failed() const { return !failure_.ok(); }
  Status take_failure() { return std::exchange(failure_, {}); }

 private:
  struct Send {
    int to;
    Message message;
  };
  Status send(int to, std::uint64_t index, std::vector<Message> messages);
  Status send_in_parts(int to, std::vector<Message> messages);
  Status send_entries(message::Append append);

  net::ControlPlane* plane_;
  std::vector<Message> to_leader_;
  std::vector<Entry> entries_;
  std::vector<Send> messages_;
  std::uint64_t index_ = 0;  // leader: of the next entry to send; member: for the next frame
  std::uint64_t read_ = 0;   // member
  Status failure_;           // error of send()
};

}  // namespace distrun::engine
