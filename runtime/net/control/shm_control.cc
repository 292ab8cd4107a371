#include "runtime/net/control/shm_control.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/net/host/shm_ring.h"

namespace distrun::net {
namespace {

constexpr std::size_t kMaxMessage = std::size_t{16} << 20;
using Length = std::uint32_t;  // before every message, in the byte order of this machine
using Header = std::array<std::byte, sizeof(Length)>;

Header header_of(std::size_t size) { return std::bit_cast<Header>(static_cast<Length>(size)); }

// The direction towards a peer. A message that fits goes into the ring as a whole. Other messages wait here and move in
// pieces.
class Outgoing {
 public:
  explicit Outgoing(RingMemory* ring) : ring_(ring) {}

  // Returns true if bytes were published.
  bool send(std::span<const std::byte> message) {
    if (waiting_.empty() && ring_.has_space(sizeof(Length) + message.size())) {
      ring_.put(header_of(message.size()));
      ring_.put(message);
      ring_.publish();
      return true;
    }
    const Header header = header_of(message.size());
    std::vector<std::byte> frame(header.begin(), header.end());
    frame.insert(frame.end(), message.begin(), message.end());
    queued_ += frame.size();
    waiting_.push_back(std::move(frame));
    return flush();
  }

  bool flush() {
    bool moved = push();
    if (waiting_.empty()) return moved;
    ring_.mark_starved();
    if (push()) moved = true;
    return moved;
  }

  [[nodiscard]] bool waiting() const { return !waiting_.empty(); }
  [[nodiscard]] std::size_t queued() const { return queued_; }
  void drop() {
    waiting_.clear();
    queued_ = 0;
    sent_ = 0;
  }

 private:
  bool push() {
    bool moved = false;
    while (!waiting_.empty()) {
      const std::span<const std::byte> rest = std::span(waiting_.front()).subspan(sent_);
      const std::size_t size = ring_.put(rest);
      if (size > 0) ring_.publish();
      moved = moved || size > 0;
      sent_ += size;
      queued_ -= size;
      if (size < rest.size()) break;
      waiting_.pop_front();
      sent_ = 0;
    }
    return moved;
  }

  RingWriter ring_;
  std::deque<std::vector<std::byte>> waiting_;  // with their headers
  std::size_t sent_ = 0;                        // bytes of the first frame
  std::size_t queued_ = 0;                      // unsent bytes of all frames
};

// The direction from a peer.
class Incoming {
 public:
  explicit Incoming(RingMemory* ring) : ring_(ring) {}

  // True if take() would return a message.
  [[nodiscard]] bool ready() const {
    if (assembling_) return partial_.size() == expected_;
    const std::size_t available = ring_.available();
    return available >= sizeof(Length) && !broken_ && available >= sizeof(Length) + length();
  }

  // True if pull() would move bytes of a message that is larger than the ring. Smaller messages arrive as a whole.
  [[nodiscard]] bool pullable() const {
    const std::size_t available = ring_.available();
    if (available == 0 || broken_) return false;
    if (assembling_) return partial_.size() < expected_;
    return available >= sizeof(Length) && sizeof(Length) + length() > RingMemory::kBytes;
  }

  // Returns true if bytes moved.
  bool pull() {
    if (!pullable()) return false;
    const std::size_t available = ring_.available();
    if (available > RingMemory::kBytes) return fail();
    if (!assembling_) {
      expected_ = length();
      if (expected_ > kMaxMessage) return fail();
      assembling_ = true;
      partial_.clear();
      consume(sizeof(Length));
      return true;
    }
    const std::size_t size = std::min(available, expected_ - partial_.size());
    const std::size_t had = partial_.size();
    partial_.resize(had + size);
    ring_.peek(0, std::span(partial_).subspan(had));
    consume(size);
    return true;
  }

  bool take(std::vector<std::byte>& out) {
    while (!ready())
      if (!pull()) return false;
    if (assembling_) {
      out = std::exchange(partial_, {});
      assembling_ = false;
      return true;
    }
    const std::size_t size = length();
    if (size > kMaxMessage || ring_.available() > RingMemory::kBytes) return fail();
    out.resize(size);
    ring_.peek(sizeof(Length), out);
    consume(sizeof(Length) + size);
    return true;
  }

  // The memory of the writer is corrupt. It is not read any more.
  [[nodiscard]] bool broken() const { return broken_; }
  // Returns true once if the writer must be rung.
  [[nodiscard]] bool take_ring() { return std::exchange(ring_pending_, false); }

 private:
  [[nodiscard]] std::size_t length() const {
    Header header;
    ring_.peek(0, header);
    return std::bit_cast<Length>(header);
  }
  void consume(std::size_t size) { ring_pending_ = ring_.consume(size) || ring_pending_; }
  bool fail() {
    broken_ = true;
    return false;
  }

  RingReader ring_;
  bool assembling_ = false;
  std::size_t expected_ = 0;
  std::vector<std::byte> partial_;
  bool broken_ = false;
  bool ring_pending_ = false;
};

struct ShmPeer {
  int rank = -1;
  Outgoing out;
  Incoming in;
  bool may_go = false;
};

class ShmControl final : public ControlPlane {
 public:
  ShmControl(HostLink& link, const World& world, SharedBytes memory)
      : link_(link), rank_(world.rank), size_(world.size), memory_(std::move(memory)) {
    // Zeroed memory is a set of empty rings. So no rank has to construct them, and no rank waits for that.
    auto* const rings = reinterpret_cast<RingMemory*>(memory_.bytes.data());
    for (int member = 1; member < size_; ++member) {
      RingMemory* const to_leader = rings + 2 * (member - 1);
      RingMemory* const to_member = to_leader + 1;
      if (rank_ == 0) peers_.push_back({.rank = member, .out = Outgoing(to_member), .in = Incoming(to_leader)});
      if (rank_ == member) peers_.push_back({.rank = 0, .out = Outgoing(to_leader), .in = Incoming(to_member)});
    }
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  Status send(int to, std::span<const std::byte> message) override;
  Status broadcast(std::span<const std::byte> message) override;
  bool receive(Received& out) override;
  bool progress() override;
  [[nodiscard]] bool pending() const override {
    return std::any_of(peers_.begin(), peers_.end(),
                       [this](const ShmPeer& peer) { return peer.out.waiting() && !(peer.may_go && ended(peer)); });
  }
  [[nodiscard]] Queued queued() const override {
    Queued queued;
    for (const ShmPeer& peer : peers_)
      if (!peer.may_go) queued.add(peer.out.queued());
    return queued;
  }
  void may_go(int member) override { peers_[static_cast<std::size_t>(member - 1)].may_go = true; }
  [[nodiscard]] std::optional<EndedLink> lost() const override;

 private:
  [[nodiscard]] bool ended(const ShmPeer& peer) const { return peer.in.broken() || link_.gone(peer.rank); }

  HostLink& link_;
  const int rank_;
  const int size_;
  const SharedBytes memory_;
  std::vector<ShmPeer> peers_;  // leader: member i + 1 at index i; other members: the leader only
  std::size_t next_ = 0;        // the peer to read first, so that no member starves the others
};

Status check_size(std::size_t size) {
  if (size <= kMaxMessage) return {};
  return {Errc::kInvalidArgument, "a control message of " + std::to_string(size) + " bytes is larger than 16 MiB"};
}

Status ShmControl::send(int to, std::span<const std::byte> message) {
  const int index = rank_ == 0 ? to - 1 : to;
  if (index < 0 || index >= static_cast<int>(peers_.size()))
    return {Errc::kInvalidArgument, "control messages go to the leader or from it, not from rank " +
                                        std::to_string(rank_) + " to rank " + std::to_string(to)};
  DISTRUN_RETURN_IF_ERROR(check_size(message.size()));
  ShmPeer& peer = peers_[static_cast<std::size_t>(index)];
  if (ended(peer) && peer.may_go) return {};
  if (ended(peer))
    return Status(ErrorInfo{.code = Errc::kRankLost,
                            .message = "the control connection to rank " + std::to_string(peer.rank) + " has ended",
                            .ranks = {peer.rank}});
  if (peer.out.send(message)) link_.ring(peer.rank);
  return {};
}

Status ShmControl::broadcast(std::span<const std::byte> message) {
  DISTRUN_CHECK(rank_ == 0, "the leader broadcasts");
  DISTRUN_RETURN_IF_ERROR(check_size(message.size()));
  // Write to all rings first, because waking a sleeper takes a system call.
  for (ShmPeer& peer : peers_)
    if (!ended(peer)) peer.out.send(message);
  for (const ShmPeer& peer : peers_) link_.ring(peer.rank);
  return {};
}

bool ShmControl::receive(Received& out) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    ShmPeer& peer = peers_[next_];
    next_ = next_ + 1 == peers_.size() ? 0 : next_ + 1;
    const bool taken = peer.in.take(out.bytes);
    if (peer.in.take_ring()) link_.ring(peer.rank);
    if (!taken) continue;
    out.from = peer.rank;
    return true;
  }
  return false;
}

bool ShmControl::progress() {
  bool moved = false;
  for (ShmPeer& peer : peers_) {
    if (peer.out.waiting() && ended(peer)) peer.out.drop();
    if (peer.out.waiting() && peer.out.flush()) {
      link_.ring(peer.rank);
      moved = true;
    }
    if (peer.in.ready() || peer.in.pull()) moved = true;
    if (peer.in.take_ring()) link_.ring(peer.rank);
  }
  return moved;
}

std::optional<EndedLink> ShmControl::lost() const {
  for (const ShmPeer& peer : peers_)
    if (!peer.may_go && ended(peer) && !peer.in.ready() && !peer.in.pullable()) {
      return EndedLink{.peer = peer.rank, .end = LinkEnd::kClosed};
    }
  return std::nullopt;
}

}  // namespace

Result<std::unique_ptr<ControlPlane>> connect_shm_control(HostLink& link, const World& world, TimePoint deadline) {
  std::vector<int> all(static_cast<std::size_t>(world.size));
  std::iota(all.begin(), all.end(), 0);
  DISTRUN_CHECK(link.ranks() == all, "all ranks of the world are on this host");
  if (world.size == 1) return std::unique_ptr<ControlPlane>(std::make_unique<ShmControl>(link, world, SharedBytes{}));
  const std::size_t rings = 2 * (all.size() - 1);
  auto memory = link.share("control", all, rings * sizeof(RingMemory), deadline);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<ControlPlane>(std::make_unique<ShmControl>(link, world, *std::move(memory)));
}

}  // namespace distrun::net
