#include "runtime/net/host/host_link.h"

#include <algorithm>
#include <utility>

#include "runtime/net/bytes/wire.h"
#include "runtime/net/host/host_candidates.h"
#include "runtime/net/host/host_mail.h"
#include "runtime/net/host/host_peers.h"
#include "runtime/net/host/host_setup.h"
#include "runtime/net/host/shared_memory.h"

namespace distrun::net {
namespace {

class MemfdHostLink final : public HostLink {
 public:
  MemfdHostLink(SharedMemory doorbell_memory, HostMail mail, std::unique_ptr<HostPeers> peers)
      : doorbell_memory_(std::move(doorbell_memory)), mail_(std::move(mail)), peers_(std::move(peers)) {}

  [[nodiscard]] const std::vector<int>& ranks() const override { return peers_->parts().ranks; }
  Result<SharedBytes> share(const std::string& name, const std::vector<int>& members, std::size_t bytes,
                            TimePoint deadline) override;
  void ring(int world_rank) override { peers_->ring(world_rank); }
  void ring_all(std::span<const int> world_ranks) override {
    for (const int rank : world_ranks) peers_->ring(rank);
  }
  [[nodiscard]] std::optional<int> lost() const override { return peers_->lost(); }
  [[nodiscard]] bool gone(int world_rank) const override { return peers_->gone(world_rank); }
  [[nodiscard]] bool oversubscribed() const override { return peers_->parts().oversubscribed; }

 private:
  // The arguments of one call of share(). They are the same for all members.
  struct Share {
    std::string tag;
    std::string name;
    const std::vector<int>& members;
    std::size_t bytes;
    TimePoint deadline;
  };

  // for the first member: creates the memory, sends it, announces the outcome
  Result<SharedMemory> make(const Share& share);
  Result<SharedMemory> take(const Share& share);  // for the other members
  Status hand_over(const Share& share, const SharedMemory& memory);
  static Result<SharedMemory> adopt(const Share& share, Packet handed);
  Packet packet(Packet::Kind kind, const Share& share, const Status& error = {}) const {
    return {.kind = kind, .from = own_rank(), .tag = share.tag, .error = error};
  }
  int own_rank() const { return ranks()[static_cast<std::size_t>(peers_->parts().self)]; }
  Watched peer(int rank) const {
    const auto index = static_cast<std::size_t>(peers_->index_of(rank));
    return {.rank = rank, .mail_box = peers_->parts().mail_boxes[index].get()};
  }

  SharedMemory doorbell_memory_;  // outlives peers_, whose destructor writes the goodbye into it
  HostMail mail_;
  std::unique_ptr<HostPeers> peers_;
};

Result<SharedBytes> MemfdHostLink::share(const std::string& name, const std::vector<int>& members, std::size_t bytes,
                                         TimePoint deadline) {
  DISTRUN_CHECK(std::is_sorted(members.begin(), members.end()) &&
                    std::find(members.begin(), members.end(), own_rank()) != members.end(),
                "members are ascending and contain this rank");
  for (const int member : members) DISTRUN_CHECK(peers_->index_of(member) >= 0, "members are ranks of this host");
  std::string tag = name;
  for (const int member : members) tag += "," + std::to_string(member);
  const Share share{.tag = std::move(tag), .name = name, .members = members, .bytes = bytes, .deadline = deadline};
  auto memory = members.front() == own_rank() ? make(share) : take(share);
  if (!memory.ok()) return memory.status();
  memory->close_fd();
  const auto owner = std::make_shared<const SharedMemory>(*std::move(memory));
  return SharedBytes{.bytes = owner->bytes(), .owner = owner};
}

Result<SharedMemory> MemfdHostLink::make(const Share& share) {
  auto memory = SharedMemory::create(share.name, share.bytes);
  if (!memory.ok()) {
    const Packet refused = packet(Packet::Kind::kMemory, share, memory.status());
    for (const int member : share.members)
      if (member != own_rank()) (void)HostMail::send(peer(member), refused, {}, share.deadline);
    return memory;
  }
  const Status outcome = hand_over(share, *memory);
  const Packet verdict = packet(Packet::Kind::kVerdict, share, outcome);
  for (const int member : share.members)
    if (member != own_rank()) (void)HostMail::send(peer(member), verdict, {}, deadline_after(1));
  if (!outcome.ok()) return outcome;
  return memory;
}

Status MemfdHostLink::hand_over(const Share& share, const SharedMemory& memory) {
  std::vector<Watched> others;
  for (const int member : share.members)
    if (member != own_rank()) others.push_back(peer(member));
  Status outcome;
  std::vector<Watched> handed;
  for (const Watched& other : others) {
    const int fd = memory.fd();
    outcome = HostMail::send(other, packet(Packet::Kind::kMemory, share), {&fd, 1}, share.deadline);
    if (!outcome.ok()) break;
    handed.push_back(other);
  }
  // Read the answers of a failed share too. Otherwise they would stay in the inbox for ever.
  for (const Watched& other : handed) {
    auto mapped =
        mail_.receive({.kind = Packet::Kind::kMapped, .from = other.rank, .tag = share.tag}, others, share.deadline);
    if (outcome.ok()) outcome = mapped.status();
  }
  return outcome;
}

Result<SharedMemory> MemfdHostLink::take(const Share& share) {
  const Watched maker = peer(share.members.front());
  auto handed = mail_.receive_even_error({.kind = Packet::Kind::kMemory, .from = maker.rank, .tag = share.tag},
                                         {&maker, 1}, share.deadline);
  // The first member has failed or ended, so it waits for no answer.
  if (handed.ok() && !handed->error.ok()) return handed->error;
  if (handed.status().code() == Errc::kRankLost) return handed.status();
  auto memory = handed.ok() ? adopt(share, *std::move(handed)) : Result<SharedMemory>(handed.status());
  const Status mapped =
      memory.ok() ? Status() : memory.status().with_context("rank " + std::to_string(own_rank()) + " of this host");
  // Even if sending fails, read the verdict. If the first member has failed and ended, its verdict says more than its
  // end of file.
  (void)HostMail::send(maker, packet(Packet::Kind::kMapped, share, mapped), {}, share.deadline);
  auto verdict = mail_.receive({.kind = Packet::Kind::kVerdict, .from = maker.rank, .tag = share.tag}, {&maker, 1},
                               share.deadline);
  if (memory.ok() && !verdict.ok()) return verdict.status();
  return memory;
}

Result<SharedMemory> MemfdHostLink::adopt(const Share& share, Packet handed) {
  if (handed.fds.size() != 1) return Status(Errc::kProtocol, "shared memory came without its descriptor");
  return SharedMemory::adopt(std::move(handed.fds[0]), share.bytes);
}

}  // namespace

Result<std::unique_ptr<HostLink>> connect_host(const HostLinkOptions& options) {
  auto candidates = find_candidates(*options.world, host_hint(options.world->rank), options.store, options.deadline);
  if (!candidates.ok()) return candidates.status();
  auto connected = set_up_host(options, *candidates);
  if (!connected.ok()) return connected.status();
  auto peers = HostPeers::create(std::move(connected->parts), options.wait_set);
  if (!peers.ok()) return peers.status();
  return std::unique_ptr<HostLink>(
      std::make_unique<MemfdHostLink>(std::move(connected->memory), std::move(connected->mail), *std::move(peers)));
}

}  // namespace distrun::net
