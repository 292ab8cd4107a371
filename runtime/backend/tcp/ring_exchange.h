// The operations of one group that use its ring. Data goes to the right neighbour and comes from the left one.
// Operations run first in, first out: on each link, all messages of an operation come before those of the next. So
// members may be at different operations without a deadlock. Only the holder of the progress token calls this.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/backend/tcp/ring.h"
#include "runtime/backend/tcp/ring_transfer.h"
#include "runtime/backend/tcp/stream.h"
#include "runtime/base/system/fork_guard.h"
#include "runtime/net/bytes/wait_set.h"

namespace distrun::backend::tcp {

// One of a member's two connections. Data flows from left to right. Only goodbye and abort messages go in the other
// direction.
struct RingLink {
  GuardedFd fd;
  std::unique_ptr<net::RecordLayer> records{};  // null: plain
  int peer = -1;                                // world rank
  bool ready = true;                            // false after the socket has blocked, until the wait set reports it
  bool gone = false;                            // nothing is sent or received any more
  bool aborted = false;                         // gone because the peer aborted, which is not its death
  EndedLink ended{};                            // valid if `gone`
  bool watched = false;                         // it is in the wait set
  std::uint32_t interest = 0;                   // events as set in the wait set

  void unwatch(net::WaitSet* wait_set);  // also ends the watch for the connection's end
  Status set_interest(net::WaitSet* wait_set, std::uint32_t wanted);
};

// This member's place in the ring.
struct RingPlace {
  std::size_t size = 1;
  std::size_t index = 0;
  int rank = -1;  // world rank
};

class RingExchange {
 public:
  // The wait set must outlive this object. It is null in a group of one.
  RingExchange(Ring ring, Tuning tuning, net::WaitSet* wait_set);
  ~RingExchange();
  RingExchange(const RingExchange&) = delete;
  RingExchange& operator=(const RingExchange&) = delete;
  // Call this first. Fails if the wait set rejects the sockets.
  Status watch();

  // Error: kOutOfMemory.
  Status start(const Operation& operation, std::uint64_t token, std::uint64_t sequence);
  bool progress(std::vector<Completed>& completed);
  // An error that only this member sees: a protocol error, or memory that cannot be read or written. The owner then
  // calls fail().
  [[nodiscard]] const Status& failure() const { return failure_; }
  // A neighbour whose connection has failed, or has ended while an operation needs it. Or a member whose loss a
  // neighbour has reported.
  [[nodiscard]] const std::optional<EndedLink>& lost() const { return lost_; }
  // A neighbour has aborted, and its engine reports the cause to all.
  [[nodiscard]] bool neighbour_gave_up() const { return left_.aborted || right_.aborted; }
  // The end of the left neighbour's connection, if it has ended without an abort; otherwise null.
  [[nodiscard]] const EndedLink* left_gone() const { return left_.gone && !left_.aborted ? &left_.ended : nullptr; }

  // Sends `farewell` to both neighbours, if their sockets accept it at once. A neighbour to which a message is half
  // sent sees only the end of file.
  void send_last_message(const Header& last_message);
  // After this call, no byte of an operation is read or written here: the kernel has its own copy of the sent bytes.
  void fail(const Header& last_message, const Status& why, std::vector<Completed>& completed);

 private:
  bool send_some();
  bool receive_some();
  bool receive_idle();
  bool receive_expected(RingTransfer& transfer);
  bool accept_header();
  void read_against_stream();
  bool retire(std::vector<Completed>& completed);

  void on_left_event();
  void update_interest();

  void on_last_message(const Header& header, RingLink& link);
  void watch_link(RingLink& link, const MessageReader& reader);
  void link_gone(RingLink& link, bool between_messages, int error);
  void end(RingLink& link, LinkEnd how, std::string text);
  void find_lost();
  void set_failure(const Status& why);

  const RingPlace seat_;
  const Tuning tuning_;
  net::WaitSet* const wait_set_;
  const Duration host_timeout_;
  RingLink left_, right_;
  MessageReader reader_;         // from the left
  MessageReader answer_reader_;  // from the right neighbour; only farewells
  MessageWriter writer_;         // to the right
  ChunkPool pool_;

  std::deque<RingTransfer> transfers_;  // in the order of start()
  std::size_t sending_ = 0;             // transfers_[sending_] is the first with something left to send
  std::size_t receiving_ = 0;
  std::optional<Header> expected_;  // the message for which reader_ has the memory
  Status failure_;                  // the first one
  std::optional<EndedLink> lost_;
};

}  // namespace distrun::backend::tcp
