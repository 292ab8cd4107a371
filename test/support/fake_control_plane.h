// The control plane of n ranks as queues in this process. A message waits in the sender's outbox until the sender calls
// progress(), as with a socket. An engine that forgets to call progress() therefore fails here too.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/annotations.h"
#include "runtime/net/control/control_plane.h"

namespace distrun::test {

class FakeControlGroup {
 public:
  // `most`: how many messages one progress() delivers, as if there were no room for more.
  explicit FakeControlGroup(int size, std::size_t most = std::numeric_limits<std::size_t>::max())
      : most_(most), members_(static_cast<std::size_t>(size)) {}

  // Call it once for each member. The group must outlive the plane.
  std::unique_ptr<net::ControlPlane> plane(int member);

  // Sets the callback that wakes `member`, for instance [&] { wait_set->wake(); }. It is called after a message for
  // `member` has arrived or a loss concerns it, on the thread that caused this.
  void on_arrival(int member, std::function<void()> wake) {
    const MutexLock lock(mutex_);
    at(member).wake = std::move(wake);
  }

  // Thread-safe. The connections of `member` end. The leader notices the loss of `member`, and `member` that of the
  // leader. If `member` is the leader, all notice it. Messages that it sent before can still be received.
  void mark_dead(int member) {
    std::vector<std::function<void()>> wakes;
    {
      const MutexLock lock(mutex_);
      at(member).dead = true;
      for (int other = 0; other < size(); ++other) {
        if (other != member && other != 0 && member != 0) continue;
        Member& seen_by = at(other);
        if (seen_by.lost < 0) seen_by.lost = (other == member) ? (member == 0 && size() > 1 ? 1 : 0) : member;
        if (seen_by.wake) wakes.push_back(seen_by.wake);
      }
    }
    for (const auto& wake : wakes) wake();
  }

  // Thread-safe. Sets the queued bytes that each plane reports for its peers.
  void report_queued(net::Queued bytes) {
    most_queued_.store(bytes.most);
    all_queued_.store(bytes.all);
  }

  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }
  // Bytes that `member` has sent so far.
  [[nodiscard]] std::size_t bytes_from(int member) {
    const MutexLock lock(mutex_);
    return at(member).sent;
  }

 private:
  friend class FakeControlPlane;

  struct Member {
    std::deque<net::Received> inbox;
    std::deque<std::pair<int, net::Received>> outbox;  // destination, message
    std::function<void()> wake;
    bool dead = false;
    bool may_go = false;
    int lost = -1;         // what lost() returns, -1 for nothing
    std::size_t sent = 0;  // bytes
  };
  Member& at(int member) DISTRUN_REQUIRES(mutex_) { return members_.at(static_cast<std::size_t>(member)); }

  Status queue(int from, int to, std::span<const std::byte> bytes) {
    const MutexLock lock(mutex_);
    if (to != 0 && from != 0) return {Errc::kInvalidArgument, "control plane: a member sends to the leader only"};
    if (bytes.size() > std::size_t{16} << 20) return {Errc::kInvalidArgument, "control plane: a message over 16 MiB"};
    if (from == 0 && at(to).dead && at(to).may_go) return {};
    if (at(from).dead || at(to).dead) {
      return {Errc::kRankLost, "control plane: the connection to member " + std::to_string(to) + " has ended"};
    }
    at(from).sent += bytes.size();
    at(from).outbox.push_back({to, {.from = from, .bytes = {bytes.begin(), bytes.end()}}});
    return {};
  }

  bool deliver(int from) {
    std::vector<std::function<void()>> wakes;
    bool moved = false;
    {
      const MutexLock lock(mutex_);
      auto& outbox = at(from).outbox;
      for (std::size_t i = 0; i < most_ && !outbox.empty(); ++i, outbox.pop_front(), moved = true) {
        Member& to = at(outbox.front().first);
        if (at(from).dead || to.dead) continue;
        to.inbox.push_back(std::move(outbox.front().second));
        if (to.wake) wakes.push_back(to.wake);
      }
    }
    for (const auto& wake : wakes) wake();
    return moved;
  }

  bool take(int member, net::Received& out) {
    const MutexLock lock(mutex_);
    auto& inbox = at(member).inbox;
    if (inbox.empty()) return false;
    out = std::move(inbox.front());
    inbox.pop_front();
    return true;
  }

  bool has_outgoing(int member) {
    const MutexLock lock(mutex_);
    return !at(member).outbox.empty();
  }

  void may_go(int member) {
    const MutexLock lock(mutex_);
    at(member).may_go = true;
  }

  int lost(int member) {
    const MutexLock lock(mutex_);
    const int lost = at(member).lost;
    return member == 0 && lost > 0 && at(lost).may_go ? -1 : lost;
  }

  const std::size_t most_;
  std::atomic<std::size_t> most_queued_{0};
  std::atomic<std::size_t> all_queued_{0};
  Mutex mutex_;
  std::vector<Member> members_;  // the vector itself never changes; each Member is guarded by mutex_
};

class FakeControlPlane : public net::ControlPlane {
 public:
  FakeControlPlane(FakeControlGroup& group, int member) : group_(group), member_(member) {}
  [[nodiscard]] int rank() const override { return member_; }
  [[nodiscard]] int size() const override { return group_.size(); }
  Status send(int to, std::span<const std::byte> message) override { return group_.queue(member_, to, message); }
  Status broadcast(std::span<const std::byte> message) override {
    DISTRUN_CHECK(member_ == 0, "only the leader broadcasts");
    Status first;
    for (int to = 1; to < size(); ++to) {
      const Status status = group_.queue(member_, to, message);
      if (first.ok()) first = status;
    }
    return first;
  }
  bool receive(net::Received& out) override { return group_.take(member_, out); }
  bool progress() override { return group_.deliver(member_); }
  [[nodiscard]] bool pending() const override { return group_.has_outgoing(member_); }
  [[nodiscard]] net::Queued queued() const override {
    return {.most = group_.most_queued_.load(), .all = group_.all_queued_.load()};
  }
  void may_go(int member) override { group_.may_go(member); }
  [[nodiscard]] std::optional<EndedLink> lost() const override {
    const int member = group_.lost(member_);
    return member < 0 ? std::nullopt : std::optional(EndedLink{.peer = member, .end = LinkEnd::kClosed});
  }

 private:
  FakeControlGroup& group_;
  int member_;
};

inline std::unique_ptr<net::ControlPlane> FakeControlGroup::plane(int member) {
  return std::make_unique<FakeControlPlane>(*this, member);
}

}  // namespace distrun::test
