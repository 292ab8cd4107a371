// All-to-alls of one group over direct connections between all pairs, by pairwise exchange: in round k a member sends
// to the one k places after it and receives from the one k places before it (Thakur, Rabenseifner and Gropp,
// Optimization of Collective Communication Operations in MPICH, 2005). Every byte travels once, and straight between
// the two tensors. Some rounds are under way together; blocks of no element take no message.
// Operations run first in, first out. Receiving needs no memory but the outputs, so a member sends until the others'
// sockets are full and waits for nobody but those who have not started the operation yet: it cannot lock up.
// For the holder of the progress token.
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
  // `members` are world ranks; this one is at `index`.
  Exchange(const std::vector<int>& members, std::size_t index, std::size_t chunk_bytes, net::WaitSet& wait_set,
           Duration host_timeout);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // What may complete does so only after open(): until then this member is needed for the others' connections.
  void start(const Operation& operation, std::uint64_t token, std::uint64_t sequence);
  void open() { open_ = true; }
  // Of member `peer`: its connection, or that there will be none, which matters to the operations that need it.
  void connected(std::size_t peer, DataLink made);
  void unreachable(std::size_t peer, const Status& why);
  // A member has given up, whose engine tells everybody why. From now on nobody who cannot be reached is the cause.
  void others_gave_up() { others_gave_up_ = true; }

  bool progress(std::vector<Completed>& completed);
  // What nobody else sees: a protocol error, or a member that cannot be reached. The owner then calls fail().
  [[nodiscard]] const Status& failure() const { return failure_; }
  // A member whose connection has ended and that an operation needs, or has failed while none did.
  [[nodiscard]] const std::optional<EndedLink>& lost() const { return lost_; }
  // Whether an operation has something to send to that world rank or to receive from it.
  [[nodiscard]] bool needs(int rank) const;
  // Tells the others as far as the sockets take it; who is in the middle of a message waits for its engine's news.
  // After this no byte of any operation is read or written here. The connections end with this object, for an end of
  // file would look like this member's death.
  void fail(const Header& farewell, const Status& why, std::vector<Completed>& completed);

 private:
  // To and from one member. Transfers are counted from the first one that was ever started.
  struct Link {
    int rank = -1;
    GuardedFd fd;                                 // invalid until it is connected
    std::unique_ptr<net::RecordLayer> records{};  // null: plain
    bool gone = false;                            // no byte will be moved any more
    bool aborted = false;                         // gone because the member gave up, which is not its death
    EndedLink ended{};                            // once gone
    bool watched = false;                         // in the wait set
    std::uint32_t interest = 0;                   // as in the wait set
    bool readable = true;                         // until the socket says no, and again when the wait set says so
    bool writable = true;
    Status why;  // not ok: it could not be made
    MessageReader reader;
    MessageWriter writer;
    std::uint64_t sending = 0, receiving = 0;  // the transfers it is at
    std::size_t sent = 0, received = 0;        // bytes of those transfers' blocks
    std::optional<Header> expected;            // of the message that `reader` has the memory for
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
  std::vector<Link> links_;  // by member; this one's own is never used
  PairwiseTransfers transfers_;
  bool open_ = false;
  bool news_ = false;  // something happened to a link since the last look
  bool others_gave_up_ = false;
  Status failure_;  // the first one
  std::optional<EndedLink> lost_;
};

}  // namespace distrun::backend::tcp
