// The operations of one group that go around its ring, to the right neighbour and from the left one. First in, first
// out: on each link all messages of an operation come before those of the next, so that members may be a different
// number of operations ahead without locking each other up. For the holder of the progress token.
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

// One of a member's two connections. Data flows from left to right; against the stream go only goodbye and abort.
struct RingLink {
  GuardedFd fd;
  std::unique_ptr<net::RecordLayer> records{};  // null: plain
  int peer = -1;                                // world rank
  bool ready = true;           // the socket may move more: true until it says no, and again when the wait set says so
  bool gone = false;           // no byte will be moved any more
  bool aborted = false;        // gone because the peer gave up, which is not its death
  EndedLink ended{};           // once gone
  bool watched = false;        // in the wait set
  std::uint32_t interest = 0;  // as in the wait set

  void unwatch(net::WaitSet* wait_set);  // until then its end is looked for
  Status set_interest(net::WaitSet* wait_set, std::uint32_t wanted);
};

// Which member of the ring this is.
struct RingSeat {
  std::size_t size = 1;
  std::size_t index = 0;
  int rank = -1;  // world rank
};

class RingExchange {
 public:
  // The wait set outlives this; null in a group of one.
  RingExchange(Ring ring, Tuning tuning, net::WaitSet* wait_set);
  ~RingExchange();
  RingExchange(const RingExchange&) = delete;
  RingExchange& operator=(const RingExchange&) = delete;
  // Before anything else. Fails where the wait set refuses the sockets.
  Status watch();

  // kOutOfMemory.
  Status start(const Operation& operation, std::uint64_t token, std::uint64_t sequence);
  bool progress(std::vector<Completed>& completed);
  // What nobody else sees: a protocol error, or memory that cannot be read or written. The owner then calls fail().
  [[nodiscard]] const Status& failure() const { return failure_; }
  // A neighbour whose connection has ended and that an operation needs, or has failed while none did; or a member whose
  // loss a neighbour has told.
  [[nodiscard]] const std::optional<EndedLink>& lost() const { return lost_; }
  // A neighbour has given up, whose engine tells everybody why.
  [[nodiscard]] bool neighbour_gave_up() const { return left_.aborted || right_.aborted; }
  // Of the left neighbour, if its connection has ended and it has not given up; else null.
  [[nodiscard]] const EndedLink* left_gone() const { return left_.gone && !left_.aborted ? &left_.ended : nullptr; }

  // Tells both neighbours as far as the sockets take it: who is in the middle of a message sees only the end of file.
  void tell(const Header& farewell);
  // After this no byte of any operation is read or written here: the system has its own copy of what was sent.
  void fail(const Header& farewell, const Status& why, std::vector<Completed>& completed);

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

  void on_farewell(const Header& header, RingLink& link);
  void watch_link(RingLink& link, const MessageReader& reader);
  void link_gone(RingLink& link, bool between_messages, int error);
  void end(RingLink& link, LinkEnd how, std::string text);
  void find_lost();
  void set_failure(const Status& why);

  const RingSeat seat_;
  const Tuning tuning_;
  net::WaitSet* const wait_set_;
  const Duration host_timeout_;
  RingLink left_, right_;
  MessageReader reader_;         // from the left
  MessageReader answer_reader_;  // from the right, against the stream
  MessageWriter writer_;         // to the right
  ChunkPool pool_;

  std::deque<RingTransfer> transfers_;  // in the order of start()
  std::size_t sending_ = 0;             // transfers_[sending_] is the first that has not sent everything
  std::size_t receiving_ = 0;
  std::optional<Header> expected_;  // of the message that reader_ has the memory for
  Status failure_;                  // the first one
  std::optional<EndedLink> lost_;
};

}  // namespace distrun::backend::tcp
