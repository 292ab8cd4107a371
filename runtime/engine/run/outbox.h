// What this engine has to say, gathered until the loop's turn ends and then sent as few frames. Token holder.
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
  explicit Outbox(net::ControlPlane* plane) : plane_(plane) {}  // null in a world of one: nobody to tell

  // Member: to the leader. The caller appends messages in the order of what happened.
  std::vector<Message>& to_leader() { return to_leader_; }
  // Leader: entries for all, in log order, and messages for one member (-1: all).
  void append(std::vector<Entry> entries);
  void say(int to, Message message);

  // Member: entries read so far, sent along in each frame. What is gathered by now was said before they were read, and
  // goes with the number that was true then.
  void set_index(std::uint64_t index) {
    read_ = index;
    if (to_leader_.empty()) index_ = index;
  }
  [[nodiscard]] bool empty() const { return to_leader_.empty() && entries_.empty() && says_.empty(); }
  // Hands everything to the control plane; it does not block.
  Status flush();
  // The same, and lets the control plane move: true if anything did. An error stays for take_failure().
  bool send();
  [[nodiscard]] bool failed() const { return !failure_.ok(); }
  Status take_failure() { return std::exchange(failure_, {}); }

 private:
  struct Say {
    int to;
    Message message;
  };
  Status send(int to, std::uint64_t index, std::vector<Message> messages);
  Status send_in_parts(int to, std::vector<Message> messages);
  Status send_entries(message::Append append);

  net::ControlPlane* plane_;
  std::vector<Message> to_leader_;
  std::vector<Entry> entries_;
  std::vector<Say> says_;
  std::uint64_t index_ = 0;  // leader: of the next entry that is sent; member: of the next frame
  std::uint64_t read_ = 0;   // member
  Status failure_;           // of send()
};

}  // namespace distrun::engine
