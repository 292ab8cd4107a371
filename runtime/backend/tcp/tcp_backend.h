// Tensors between ranks over authenticated TCP connections: around a ring, to the right neighbour and from the left
// one. All-to-alls alone go straight from each member to each other one (exchange.h), over connections that the first
// of them makes. Used by the holder of the progress token, except abort(). Operations run first in, first out: on every
// link all messages of an operation come before those of the next, so that members may be a different number of
// operations ahead without locking each other up. When an operation needs a member that is gone, lost_peer() names it
// and the operations stand still until abort() gives the cause. Only what nobody else sees fails them from here: a
// protocol error, a member that cannot be reached, or memory or descriptors that an operation needs and does not get.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/backend/abort_state.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/tcp/exchange.h"
#include "runtime/backend/tcp/job.h"
#include "runtime/backend/tcp/mesh.h"
#include "runtime/backend/tcp/ring.h"
#include "runtime/backend/tcp/stream.h"
#include "runtime/base/fork_guard.h"
#include "runtime/net/bytes/wait_set.h"

namespace distrun::backend::tcp {

const Capabilities& tcp_capabilities();

struct TcpOptions {
  Ring ring;
  GroupSpec group;
  Services services;
  Tuning tuning;
};

class TcpBackend final : public Backend {
 public:
  // Fails where the wait set refuses the sockets.
  static Result<std::unique_ptr<Backend>> create(TcpOptions options);
  ~TcpBackend() override;
  TcpBackend(const TcpBackend&) = delete;
  TcpBackend& operator=(const TcpBackend&) = delete;

  [[nodiscard]] std::string_view name() const override { return "tcp"; }
  [[nodiscard]] const Capabilities& capabilities() const override { return tcp_capabilities(); }
  Status start(const Operation& operation, std::uint64_t token) override;
  bool progress() override;
  void completed(std::vector<Completed>& out) override;
  void abort(const Status& why) override;
  [[nodiscard]] int lost_peer() const override { return lost_; }

 private:
  // One of the ring's two connections. Data flows from left to right; against the stream go only goodbye and abort.
  struct Link {
    GuardedFd fd;
    int peer = -1;               // world rank
    bool ready = true;           // the socket may move more: true until it says no, and again when the wait set says so
    bool gone = false;           // no byte will be moved any more
    bool aborted = false;        // gone because the peer gave up, which is not its death
    bool watched = false;        // in the wait set
    std::uint32_t interest = 0;  // what the wait set was told
  };

  explicit TcpBackend(TcpOptions options);
  Status watch_links();
  Status start_on_ring(const Operation& operation, std::uint64_t token);
  Status start_exchange(const Operation& operation, std::uint64_t token);
  Status make_mesh();

  bool send_some();
  bool receive_some();
  bool receive_idle();
  bool receive_expected(Job& job);
  bool accept_header();
  void read_against_stream();
  bool retire_jobs();

  void on_left_event();
  void unwatch(Link& link);
  void set_interest(Link& link, std::uint32_t interest);
  void update_interest();

  void on_farewell(const Header& header, Link& link);
  void link_gone(Link& link, bool between_messages);
  void find_lost_peer();
  void fail(const Status& why);
  void tell_neighbours(const Header& farewell);

  const std::size_t size_;
  const std::size_t index_;
  const GroupSpec group_;
  const Services services_;
  const Tuning tuning_;
  net::WaitSet* const wait_set_;
  Link left_, right_;
  MessageReader reader_;         // from the left
  MessageReader answer_reader_;  // from the right, against the stream
  MessageWriter writer_;         // to the right
  ChunkPool pool_;

  std::deque<Job> jobs_;     // in the order of start()
  std::size_t sending_ = 0;  // jobs_[sending_] is the first that has not sent everything
  std::size_t receiving_ = 0;
  std::optional<Header> expected_;  // of the message that reader_ has the memory for
  bool stalled_ = false;            // no memory is free for what comes from the left
  std::uint64_t next_sequence_ = 0;
  std::unique_ptr<Exchange> exchange_;  // null until the first all-to-all, like the next
  std::unique_ptr<Mesh> mesh_;
  std::vector<Completed> completed_;
  Status failed_;
  int lost_ = -1;
  AbortState abort_;
};

}  // namespace distrun::backend::tcp
