// All-to-alls of one group over direct connections between all pairs of members. Uses pairwise exchange: in round k a
// member sends to the member k places after it and receives from the member k places before it (Thakur, Rabenseifner
// and Gropp, Optimization of Collective Communication Operations in MPICH, 2005). Every byte is sent once and goes
// directly from tensor to tensor. Several rounds are in flight together. An empty block needs no message.
// Operations run first in, first out. Receiving needs no memory except the outputs. So a member sends until the others'
// sockets are full, and it waits only for members that have not started the operation yet. There is no deadlock.
// Only the holder of the progress token calls this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/backend/protection.h"
#include "runtime/backend/tcp/message.h"
#include "runtime/backend/tcp/pairwise.h"
#include "runtime/backend/tcp/stream.h"
#include "runtime/base/system/fork_guard.h"
#include "runtime/net/bytes/wait_set.h"

namespace distrun::backend::tcp {

class Exchange {
 public:
  // `members` are world ranks; this member is at `index`.
  Exchange(const std::vector<int>& members, std::size_t index, std::size_t chunk_bytes, net::WaitSet& wait_set,
           Duration host_timeout);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Operations complete only after open(). Until then, other members may need this member to make their connections.
  void start(const Operation& operation, std::uint64_t token, std::uint64_t sequence);
  void open() { open_ = true; }
  // The result of connecting to member `peer`: its connection, or the reason why it has none. A missing connection
  // matters only to operations that need it.
  void connected(std::size_t peer, DataLink made);
  void unreachable(std::size_t peer, const Status& why);
  // Another member has aborted, and its engine reports the cause to all. From now on an unreachable member is no
  // failure.
  void others_gave_up() { others_gave_up_ = true; }

  bool progress(std::vector<Completed>& completed);
  // An error that only this member sees: a protocol error, or a member that cannot be reached. The owner then calls
  // fail().
  [[nodiscard]] const Status& failure() const { return failure_; }
  // A member whose connection has failed, or has ended while an operation needs it.
  [[nodiscard]] const std::optional<EndedLink>& lost() const { return lost_; }
  // Whether an operation still has data to send to this world rank or to receive from it.
  [[nodiscard]] bool needs(int rank) const;
  // Sends `farewell` to the other members, if their sockets accept it at once. A member to which a message is half sent
  // gets none; it waits until its own engine knows the cause. After this call, no byte of an operation is read or
  // written here. The connections stay open until this object is destroyed, because an end of file would look like this
  // member's death.
  void fail(const Header& last_message, const Status& why, std::vector<Completed>& completed);

 private:
  // The connection to one member. Transfers are numbered from the first one that was ever started.
  struct Link {
    int rank = -1;
    GuardedFd fd;                                 // invalid until it is connected
    std::unique_ptr<net::RecordLayer> records{};  // null: plain
    bool gone = false;                            // nothing is sent or received any more
    bool aborted = false;                         // gone because the member aborted, which is not its death
    EndedLink ended{};                            // valid if `gone`
    bool watched = false;                         // it is in the wait set
    std::uint32_t interest = 0;                   // events as set in the wait set
    bool readable = true;                         // false after the socket has blocked, until the wait set reports it
    bool writable = true;
    Status why;  // not ok: the connection could not be made
    MessageReader reader;
    MessageWriter writer;
    std::uint64_t sending = 0, receiving = 0;  // numbers of the current transfers
    std::size_t sent = 0, received = 0;        // bytes done of those transfers' blocks
    std::optional<Header> expected;            // the message for which `reader` has the memory
  };

  [[nodiscard]] std::size_t member_after(std::size_t places) const { return (index_ + places) % links_.size(); }

  bool send_some();
  bool send_to(std::size_t peer);
  bool receive_from(std::size_t peer);
  bool receive_idle(Link& link);
  bool receive_expected(Link& link, std::size_t peer);
  bool accept_header(Link& link);
  void skip_empty(Link& link, std::size_t peer);
  bool retire(std::vector<Completed>& completed);
  [[nodiscard]] bool needed(std::size_t peer) const;
  void find_lost();
  void on_event(Link& link);
  void update_interest(Link& link);
  void unwatch(Link& link);
  void link_gone(Link& link, bool between_messages, int error);
  void end(Link& link, LinkEnd how, std::string text);
  void set_failure(const Status& why);

  const std::size_t index_;
  const std::size_t chunk_bytes_;
  net::WaitSet& wait_set_;
  const Duration host_timeout_;
  std::vector<Link> links_;  // by member; the entry of this member is unused
  PairwiseTransfers transfers_;
  bool open_ = false;
  bool news_ = false;  // the state of a link has changed since the last progress()
  bool others_gave_up_ = false;
  Status failure_;  // the first one
  std::optional<EndedLink> lost_;
};

}  // namespace distrun::backend::tcp
