#include "runtime/net/host/host_setup.h"

#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <span>
#include <utility>

#include "runtime/net/bytes/open_files.h"
#include "runtime/net/bytes/wire.h"
#include "runtime/net/host/host_limits.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::net {
namespace {

constexpr std::size_t kNonceBytes = 32;
using Nonce = std::array<std::byte, kNonceBytes>;
constexpr const char* kTag = "set-up";

// The data of one rank in the shared memory.
struct RankLine {
  DoorbellLine bell;
  Nonce challenge;  // written by the leader, read back by the rank
  Nonce answer;     // written by the rank, read back by the leader
  CoreShare cores;  // written by the rank before its proof
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "the words are shared between processes");

Result<Nonce> random_nonce() {
  Nonce nonce;
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    return errno_status("no random bytes for the hand-over of shared memory", errno);
  return nonce;
}

// A failure in the store is "!", the error code, a space and the text.
std::string failure_text(const Status& status) {
  return "!" + std::to_string(static_cast<int>(status.code())) + " " + status.message();
}

Status failure_of(const std::string& text) {
  int code = static_cast<int>(Errc::kInternal);
  const auto parsed = std::from_chars(text.data() + 1, text.data() + text.size(), code);
  if (code <= 0 || code > static_cast<int>(Errc::kInternal)) code = static_cast<int>(Errc::kInternal);
  const auto used = static_cast<std::size_t>(parsed.ptr - text.data());
  return {static_cast<Errc>(code), text.substr(std::min(used + 1, text.size()))};
}

// One rank's part of the set-up. run() calls lead() or join() once.
class Setup {
 public:
  Setup(const HostLinkOptions& options, const HostCandidates& candidates)
      : options_(options), world_(*options.world), ranks_(candidates.ranks), prefix_(candidates.prefix), mail_(-1) {
    parts_.ranks = ranks_;
    parts_.self = index_of(world_.rank);
    parts_.event_fds.resize(ranks_.size());
    parts_.mail_boxes.resize(ranks_.size());
  }

  Result<ConnectedHost> run() {
    const bool leader = parts_.self == 0;
    const Status own_ends = make_own_ends();
    const Status outcome = leader ? lead(own_ends) : join(own_ends);
    if (!outcome.ok()) return outcome;
    memory_.close_fd();
    return ConnectedHost{.memory = std::move(memory_), .parts = std::move(parts_), .mail = std::move(mail_)};
  }

 private:
  // Leader.
  Status lead(const Status& own_ends);
  Status publish_address(const Status& own_ends);
  Status accept_all();
  Status accept_one();
  Status greet(std::unique_ptr<SecureSocket> socket);
  Status reported_failure();
  Status introduce_all();
  Status introduce(std::size_t member);
  Status check_proof(std::size_t member, const Packet& proof);
  Status announce(const Status& verdict);

  // Member.
  Status join(Status own_ends);
  Status join_leader(const std::string& address);
  Status take_invitation();
  Status take_peers();
  Status prove();

  // Both.
  Status make_own_ends();
  Status make_memory();
  void place_lines();
  Hello hello(int to) const {
    return {.purpose = "host",
            .job_id = world_.job_id,
            .from = world_.rank,
            .to = to,
            .version = std::to_string(kProtocolVersion)};
  }
  int index_of(int rank) const {
    const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
    return found != ranks_.end() && *found == rank ? static_cast<int>(found - ranks_.begin()) : -1;
  }
  RankLine& line(std::size_t index) const { return reinterpret_cast<RankLine*>(memory_.bytes().data())[index]; }
  Watched peer(std::size_t index) const { return {ranks_[index], parts_.mail_boxes[index].get()}; }
  std::vector<Watched> members() const {
    std::vector<Watched> watched;
    for (std::size_t i = 1; i < ranks_.size(); ++i) watched.push_back(peer(i));
    return watched;
  }

  const HostLinkOptions& options_;
  const World& world_;
  const std::vector<int>& ranks_;
  const std::string prefix_;
  HostParts parts_;
  GuardedFd own_box_;  // outer end of this rank's inbox, until the others have it
  HostMail mail_;
  SharedMemory memory_;
  std::unique_ptr<SecureListener> listener_;
};

Status Setup::make_own_ends() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return errno_status("no socket pair for the ranks of this host", errno);
  parts_.inbox = GuardedFd(Fd(ends[0]));
  own_box_ = GuardedFd(Fd(ends[1]));
  mail_ = HostMail(ends[0]);
  GuardedFd& bell = parts_.event_fds[static_cast<std::size_t>(parts_.self)];
  bell = GuardedFd(Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!bell.valid()) return errno_status("no eventfd for the ranks of this host", errno);
  const std::size_t others = ranks_.size() - 1;
  // make_room() only checks: its places are closed at once, because the descriptors of the others arrive now.
  return make_room(2 * others, "rank " + std::to_string(world_.rank) + " needs two descriptors of each of " +
                                   std::to_string(others) + " other ranks of its host")
      .status();
}

void Setup::place_lines() {
  for (std::size_t i = 0; i < ranks_.size(); ++i) parts_.lines.push_back(&line(i).bell);
}

// ---- leader

Status Setup::make_memory() {
  auto memory = SharedMemory::create("doorbells", ranks_.size() * sizeof(RankLine));
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  for (std::size_t i = 0; i < ranks_.size(); ++i) std::construct_at(&line(i));
  line(0).cores = core_share();
  place_lines();
  return {};
}

Status Setup::lead(const Status& own_ends) {
  if (ranks_.size() == 1) {
    DISTRUN_RETURN_IF_ERROR(own_ends);
    DISTRUN_RETURN_IF_ERROR(make_memory());
    parts_.oversubscribed = oversubscribed(std::span(&line(0).cores, 1));
    return {};
  }
  if (const Status published = publish_address(own_ends); !published.ok()) {
    (void)options_.store->set(prefix_ + "address", failure_text(published));
    return published;
  }
  Status verdict = accept_all();
  listener_.reset();
  if (verdict.ok()) verdict = introduce_all();
  return announce(verdict);
}

Status Setup::publish_address(const Status& own_ends) {
  DISTRUN_RETURN_IF_ERROR(own_ends);
  DISTRUN_RETURN_IF_ERROR(make_memory());
  auto listener = listen_secure("unix:@", *options_.key, hello(-1), options_.log);
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);
  return options_.store->set(prefix_ + "address", listener_->address());
}

Status Setup::accept_all() {
  for (std::size_t i = 1; i < ranks_.size(); ++i) DISTRUN_RETURN_IF_ERROR(accept_one());
  return {};
}

Status Setup::reported_failure() {
  const auto failures = options_.store->add(prefix_ + "failures", 0);
  if (!failures.ok()) return failures.status();
  // If a member died before it connected, the store knows that and answers with the error that ends the job.
  if (*failures == 0) return options_.store->get(prefix_ + "address", options_.deadline).status();
  const auto text = options_.store->get(prefix_ + "failure", options_.deadline);
  return text.ok() ? failure_of(*text) : text.status();
}

Status Setup::accept_one() {
  const auto accept = [this](const Hello& peer) -> std::string {
    const int index = index_of(peer.from);
    if (index <= 0) return "rank " + std::to_string(peer.from) + " is not on this host";
    if (parts_.mail_boxes[static_cast<std::size_t>(index)].valid())
      return "rank " + std::to_string(peer.from) + " is connected already";
    return "";
  };
  // A member that cannot connect reports this in the store.
  auto socket = accept_or_news(*listener_, accept, options_.deadline, [this] { return reported_failure(); });
  if (socket.ok()) return greet(*std::move(socket));
  if (socket.status().code() != Errc::kTimeout) return socket.status();
  std::string missing;
  for (std::size_t i = 1; i < ranks_.size(); ++i) {
    if (!parts_.mail_boxes[i].valid()) missing += (missing.empty() ? "" : ", ") + std::to_string(ranks_[i]);
  }
  return {Errc::kTimeout, "these ranks of host " + world_.host + " did not connect in time: " + missing};
}

Status Setup::greet(std::unique_ptr<SecureSocket> socket) {
  const auto index = static_cast<std::size_t>(index_of(socket->peer().from));
  auto plain = socket->release_plain();
  if (!plain.ok()) return plain.status();
  const std::byte greeting{1};
  const int box = own_box_.get();
  DISTRUN_RETURN_IF_ERROR(send_with_fds(plain->get(), {&greeting, 1}, {&box, 1}, options_.deadline));
  auto got = receive_with_fds(plain->get(), 1, options_.deadline);
  if (!got.ok()) return got.status();
  if (got->fds.size() != 2)
    return {Errc::kRankLost, "rank " + std::to_string(ranks_[index]) + " of this host ended during the set-up"};
  parts_.mail_boxes[index] = GuardedFd(std::move(got->fds[0]));
  parts_.event_fds[index] = GuardedFd(std::move(got->fds[1]));
  return {};
}

Status Setup::introduce_all() {
  for (std::size_t i = 1; i < ranks_.size(); ++i) DISTRUN_RETURN_IF_ERROR(introduce(i));
  std::vector<CoreShare> shares;
  for (std::size_t i = 0; i < ranks_.size(); ++i) shares.push_back(line(i).cores);
  parts_.oversubscribed = oversubscribed(shares);
  return {};
}

Status Setup::introduce(std::size_t member) {
  auto challenge = random_nonce();
  if (!challenge.ok()) return challenge.status();
  line(member).challenge = *challenge;
  const Watched to = peer(member);
  Packet invite{.kind = Packet::Kind::kInvite, .from = world_.rank, .tag = kTag};
  const int memory = memory_.fd();
  DISTRUN_RETURN_IF_ERROR(HostMail::send(to, invite, {&memory, 1}, options_.deadline));
  // Two descriptors for each rank except the member itself, in rank order.
  std::vector<int> fds;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (i != member) {
      fds.push_back(parts_.event_fds[i].get());
      fds.push_back(i == 0 ? own_box_.get() : parts_.mail_boxes[i].get());
    }
    if (fds.size() == kMaxPassedFds || (i + 1 == ranks_.size() && !fds.empty())) {
      Packet peers{.kind = Packet::Kind::kPeers, .from = world_.rank, .tag = kTag};
      DISTRUN_RETURN_IF_ERROR(HostMail::send(to, peers, fds, options_.deadline));
      fds.clear();
    }
  }
  auto proof =
      mail_.receive({.kind = Packet::Kind::kProof, .from = ranks_[member], .tag = kTag}, members(), options_.deadline);
  if (!proof.ok()) return proof.status();
  return check_proof(member, *proof);
}

Status Setup::check_proof(std::size_t member, const Packet& proof) {
  const RankLine& shared = line(member);
  const bool right = proof.body.size() == 2 * kNonceBytes &&
                     std::equal(shared.challenge.begin(), shared.challenge.end(), proof.body.begin()) &&
                     std::equal(shared.answer.begin(), shared.answer.end(), proof.body.begin() + kNonceBytes);
  if (right) return {};
  return {Errc::kUnsupported, "rank " + std::to_string(ranks_[member]) + " does not see the memory of rank " +
                                  std::to_string(world_.rank) + " although both seem to be on host " + world_.host};
}

Status Setup::announce(const Status& verdict) {
  Packet packet{.kind = Packet::Kind::kVerdict, .from = world_.rank, .tag = kTag, .error = verdict};
  packet.body = {parts_.oversubscribed ? std::byte{1} : std::byte{0}};
  for (std::size_t i = 1; i < ranks_.size(); ++i) {
    if (!parts_.mail_boxes[i].valid()) continue;
    // Ignore failures: the watch for deaths finds a member that has ended.
    (void)HostMail::send(peer(i), packet, {}, deadline_after(1));
  }
  own_box_.reset();
  return verdict;
}

// ---- member

Status Setup::join(Status own_ends) {
  const auto address = options_.store->get(prefix_ + "address", options_.deadline);
  if (!address.ok()) return address.status();
  if (address->starts_with("!")) return failure_of(*address);
  if (own_ends.ok()) own_ends = join_leader(*address);
  if (!own_ends.ok()) {
    Status status = own_ends.with_context("rank " + std::to_string(world_.rank) + " of host " + world_.host);
    (void)options_.store->set(prefix_ + "failure", failure_text(status));
    (void)options_.store->add(prefix_ + "failures", 1);
    return status;
  }
  Status ready = take_invitation();
  if (ready.ok()) ready = prove();
  if (!ready.ok()) {
    const Packet failed{.kind = Packet::Kind::kProof, .from = world_.rank, .tag = kTag, .error = ready};
    (void)HostMail::send(peer(0), failed, {}, deadline_after(1));
    return ready;
  }
  const Watched leader = peer(0);
  auto verdict =
      mail_.receive({.kind = Packet::Kind::kVerdict, .from = ranks_[0], .tag = kTag}, {&leader, 1}, options_.deadline);
  if (!verdict.ok()) return verdict.status();
  parts_.oversubscribed = !verdict->body.empty() && verdict->body[0] != std::byte{0};
  return {};
}

Status Setup::join_leader(const std::string& address) {
  auto socket = connect_secure(address, *options_.key, hello(ranks_[0]), options_.deadline);
  if (!socket.ok()) return socket.status();
  auto plain = (*socket)->release_plain();
  if (!plain.ok()) return plain.status();
  auto got = receive_with_fds(plain->get(), 1, options_.deadline);
  if (!got.ok()) return got.status();
  if (got->fds.size() != 1)
    return {Errc::kRankLost, "rank " + std::to_string(ranks_[0]) + " of this host ended during the set-up"};
  parts_.mail_boxes[0] = GuardedFd(std::move(got->fds[0]));
  const std::byte greeting{1};
  const int own[2] = {own_box_.get(), parts_.event_fds[static_cast<std::size_t>(parts_.self)].get()};
  DISTRUN_RETURN_IF_ERROR(send_with_fds(plain->get(), {&greeting, 1}, own, options_.deadline));
  own_box_.reset();
  return {};
}

Status Setup::take_invitation() {
  const Watched leader = peer(0);
  auto invite =
      mail_.receive({.kind = Packet::Kind::kInvite, .from = ranks_[0], .tag = kTag}, {&leader, 1}, options_.deadline);
  if (!invite.ok()) return invite.status();
  if (invite->fds.size() != 1) return {Errc::kProtocol, "an invitation without memory from the leader of this host"};
  auto memory = SharedMemory::adopt(std::move(invite->fds[0]), ranks_.size() * sizeof(RankLine));
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  place_lines();
  return take_peers();
}

Status Setup::take_peers() {
  const Watched leader = peer(0);
  std::vector<Fd> fds;
  while (fds.size() < 2 * (ranks_.size() - 1)) {
    auto peers =
        mail_.receive({.kind = Packet::Kind::kPeers, .from = ranks_[0], .tag = kTag}, {&leader, 1}, options_.deadline);
    if (!peers.ok()) return peers.status();
    if (peers->fds.empty()) return {Errc::kProtocol, "an introduction without descriptors"};
    std::move(peers->fds.begin(), peers->fds.end(), std::back_inserter(fds));
  }
  auto next = fds.begin();
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (static_cast<int>(i) == parts_.self) continue;
    parts_.event_fds[i] = GuardedFd(std::move(*next++));
    parts_.mail_boxes[i] = GuardedFd(std::move(*next++));
  }
  return {};
}

Status Setup::prove() {
  RankLine& own = line(static_cast<std::size_t>(parts_.self));
  auto answer = random_nonce();
  if (!answer.ok()) return answer.status();
  own.answer = *answer;
  own.cores = core_share();
  Packet proof{.kind = Packet::Kind::kProof, .from = world_.rank, .tag = kTag};
  proof.body.assign(own.challenge.begin(), own.challenge.end());
  proof.body.insert(proof.body.end(), answer->begin(), answer->end());
  // Even if sending fails, the member reads the verdict. If the leader has failed and ended, its verdict says more than
  // its end of file.
  (void)HostMail::send(peer(0), proof, {}, options_.deadline);
  return {};
}

}  // namespace

Result<ConnectedHost> set_up_host(const HostLinkOptions& options, const HostCandidates& candidates) {
  return Setup(options, candidates).run();
}

}  // namespace distrun::net
