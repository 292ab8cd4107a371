// Ranks of one host as threads of one process. This is HostLink without set-up, with real doorbells and real ends of
// file.
//     FakeHost host(4);
//     threads: auto link = host.link(rank, wait_set);   // null wait_set: the link never sleeps and sees no deaths
// All threads use ONE mapping of every share, because TSan sees no order between aliases. The mapping is freed with the
// last member that holds it. The FakeHost must outlive its links.
#pragma once

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/annotations.h"
#include "runtime/base/fd.h"
#include "runtime/net/host/host_link.h"
#include "runtime/net/host/host_peers.h"

namespace distrun::test {

using net::DoorbellLine, net::HostLink, net::HostParts, net::HostPeers, net::WaitSet;

class FakeHost;

class FakeHostLink final : public HostLink {
 public:
  FakeHostLink(FakeHost& host, std::unique_ptr<HostPeers> peers) : host_(host), peers_(std::move(peers)) {}
  [[nodiscard]] const std::vector<int>& ranks() const override { return peers_->parts().ranks; }
  Result<net::SharedBytes> share(const std::string& name, const std::vector<int>& members, std::size_t bytes,
                                 TimePoint deadline) override;
  void ring(int world_rank) override { peers_->ring(world_rank); }
  void ring_all(std::span<const int> world_ranks) override {
    for (const int rank : world_ranks) peers_->ring(rank);
  }
  [[nodiscard]] std::optional<int> lost() const override { return peers_->lost(); }
  [[nodiscard]] bool gone(int world_rank) const override { return peers_->gone(world_rank); }
  [[nodiscard]] bool oversubscribed() const override { return peers_->parts().oversubscribed; }
  // Acts as if this rank had been killed: the others see end of file without a goodbye.
  void die() { peers_->vanish(); }

 private:
  FakeHost& host_;
  std::unique_ptr<HostPeers> peers_;
  std::map<std::pair<std::string, std::vector<int>>, std::size_t> shares_made_;
};

struct FakeHostOptions {
  bool oversubscribed = true;  // true, because tests run more ranks than cores: no rank spins for long
  int first_rank = 0;          // world rank of the first thread
  std::string share_error;     // not empty: every share() fails with this text, as under a memory limit
};

class FakeHost {
 public:
  explicit FakeHost(int ranks, FakeHostOptions options = {}) : options_(std::move(options)), lines_(count(ranks)) {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      int ends[2] = {-1, -1};
      DISTRUN_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "socketpair");
      inboxes_.emplace_back(ends[0]);
      mail_boxes_.emplace_back(ends[1]);
      event_fds_.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      world_ranks_.push_back(options_.first_rank + static_cast<int>(i));
    }
  }

  // The link of the local index `index`. Call it once for each index. Thread-safe.
  std::unique_ptr<FakeHostLink> link(int index, WaitSet* wait_set) {
    HostParts parts;
    {
      const MutexLock lock(mutex_);
      parts.ranks = world_ranks_;
      parts.self = index;
      for (DoorbellLine& line : lines_) parts.lines.push_back(&line);
      for (std::size_t i = 0; i < lines_.size(); ++i) {
        const bool own = i == count(index);
        parts.event_fds.push_back(copy_of(event_fds_[i]));
        parts.mail_boxes.push_back(own ? GuardedFd() : copy_of(mail_boxes_[i]));
      }
      parts.inbox = GuardedFd(std::move(inboxes_[count(index)]));
      parts.oversubscribed = options_.oversubscribed;
    }
    auto peers = HostPeers::create(std::move(parts), wait_set);
    DISTRUN_CHECK(peers.ok(), "the wait set takes the descriptors");
    return std::make_unique<FakeHostLink>(*this, *std::move(peers));
  }

 private:
  friend class FakeHostLink;
  struct Share {
    net::SharedBytes memory;  // until all members have taken it
    std::size_t taken = 0;
  };
  using Key = std::pair<std::string, std::vector<int>>;

  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  static GuardedFd copy_of(const Fd& fd) { return GuardedFd(Fd(::dup(fd.get()))); }

  static net::SharedBytes zeroed(std::size_t bytes) {
    const std::size_t whole_pages = (bytes + 4095) / 4096 * 4096;
    const std::shared_ptr<void> memory(std::aligned_alloc(4096, whole_pages),
                                       [](void* what) { std::free(what); });  // NOLINT(cppcoreguidelines-no-malloc)
    std::memset(memory.get(), 0, whole_pages);
    return {.bytes = {static_cast<std::byte*>(memory.get()), bytes}, .owner = memory};
  }

  Result<net::SharedBytes> share(const Key& key, std::size_t nth, std::size_t bytes) {
    const MutexLock lock(mutex_);
    if (!options_.share_error.empty()) return Status(Errc::kOutOfMemory, options_.share_error);
    std::deque<Share>& made = shares_[key];
    while (made.size() <= nth) made.emplace_back();
    Share& share = made[nth];
    if (share.taken == 0) share.memory = zeroed(bytes);
    DISTRUN_CHECK(share.memory.bytes.size() == bytes, "all members share the same number of bytes");
    return ++share.taken == key.second.size() ? std::exchange(share.memory, {}) : share.memory;
  }

  const FakeHostOptions options_;
  Mutex mutex_;
  std::deque<DoorbellLine> lines_;  // a deque, since lines cannot move
  std::vector<int> world_ranks_;
  std::vector<Fd> event_fds_, inboxes_, mail_boxes_;
  std::map<Key, std::deque<Share>> shares_ DISTRUN_GUARDED_BY(mutex_);
};

inline Result<net::SharedBytes> FakeHostLink::share(const std::string& name, const std::vector<int>& members,
                                                    std::size_t bytes, TimePoint /*deadline*/) {
  const auto key = std::make_pair(name, members);
  return host_.share(key, shares_made_[key]++, bytes);
}

}  // namespace distrun::test
