#include "runtime/backend/tcp/exchange.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace distrun::backend::tcp {
namespace {

// Messages to or from each member that one progress() moves at most, so that the engine gets to its other work.
constexpr int kMaxTurns = 16;

// Under way together: enough that a member which comes late does not hold up the rest, and few enough that not all
// members send to one.
constexpr std::size_t kRounds = 4;

}  // namespace

Exchange::Exchange(const std::vector<int>& members, std::size_t index, std::size_t chunk_bytes, net::WaitSet& wait_set)
    : index_(index), chunk_bytes_(chunk_bytes), wait_set_(wait_set), links_(members.size()) {
  for (std::size_t peer = 0; peer < links_.size(); ++peer) links_[peer].rank = members[peer];
}

Exchange::~Exchange() {
  for (Link& link : links_) unwatch(link);
}

void Exchange::start(const Operation& operation, std::uint64_t token, std::uint64_t sequence) {
  const std::size_t size = links_.size();
  DISTRUN_CHECK(operation.counts.size() == size * size, "an alltoall needs the counts of all pairs");
  const std::size_t unit = size_of(operation.dtype);
  Job job{.operation = operation, .token = token, .sequence = sequence, .in = {0}, .out = {0}};
  for (std::size_t peer = 0; peer < size; ++peer) {
    job.in.push_back(job.in.back() + operation.counts[index_ * size + peer] * unit);
    job.out.push_back(job.out.back() + operation.counts[peer * size + index_] * unit);
    if (peer == index_) continue;
    if (job.bytes_to(peer) > 0) ++job.sends;
    if (job.bytes_from(peer) > 0) ++job.receives;
  }
  jobs_.push_back(std::move(job));
}

void Exchange::connected(std::size_t peer, Fd fd) {
  Link& link = links_[peer];
  link.fd = GuardedFd(std::move(fd));
  link.interest = EPOLLIN;
  news_ = true;
  const Status status = wait_set_.add(link.fd.get(), link.interest, [this, &link](std::uint32_t) { on_event(link); });
  link.watched = status.ok();
  set_failure(status);
}

void Exchange::unreachable(std::size_t peer, const Status& why) {
  links_[peer].why = why;
  links_[peer].gone = true;
  news_ = true;
}

bool Exchange::progress(std::vector<Completed>& completed) {
  if (!failure_.ok() || (jobs_.empty() && !news_)) return false;
  news_ = false;
  bool moved = false;
  for (int turn = 0; turn < kMaxTurns; ++turn) {
    bool again = send_some();
    for (std::size_t places = 1; places < links_.size(); ++places) {
      again = receive_from(member_after(links_.size() - places)) || again;
    }
    if (!failure_.ok()) return true;
    if (!again) break;
    moved = true;
  }
  moved = retire(completed) || moved;
  find_lost();
  for (Link& link : links_) update_interest(link);
  return moved;
}

Header Exchange::header(const Job& job, std::size_t done, std::size_t block) const {
  return {.kind = MessageKind::kData,
          .op = OpKind::kAlltoall,
          .dtype = job.operation.dtype,
          .sequence = job.sequence,
          .index = static_cast<std::uint32_t>(done / chunk_bytes_),
          .bytes = static_cast<std::uint32_t>(std::min(chunk_bytes_, block - done))};
}

// One message to each of the first members, in the order of the rounds, that have not got their whole block.
bool Exchange::send_some() {
  const auto sending = std::ranges::find_if(jobs_, [](const Job& job) { return job.sends > 0; });
  if (sending == jobs_.end()) return false;
  const std::uint64_t number = first_ + static_cast<std::uint64_t>(sending - jobs_.begin());
  bool moved = false;
  std::size_t under_way = 0;
  for (std::size_t round = 1; round < links_.size() && under_way < kRounds; ++round) {
    const std::size_t peer = member_after(round);
    Link& link = links_[peer];
    if (link.sending > number || sending->bytes_to(peer) == 0) continue;
    link.sending = number;
    ++under_way;
    moved = send_to(peer) || moved;
  }
  return moved;
}

bool Exchange::send_to(std::size_t peer) {
  Link& link = links_[peer];
  if (!link.fd.valid() || link.gone || !link.writable) return false;
  Job& job = this->job(link.sending);
  const std::size_t block = job.bytes_to(peer);
  const Header header = this->header(job, link.sent, block);
  if (link.writer.idle()) {
    link.writer.begin(header);
    link.writer.pieces().add(job.operation.segments[0].in + job.in[peer] + link.sent, header.bytes);
  }
  const Io io = link.writer.write(link.fd.get());
  if (io == Io::kDone) {
    link.sent += header.bytes;
    if (link.sent < block) return true;
    link.sent = 0;
    ++link.sending;
    --job.sends;
    return true;
  }
  link.writable = false;
  if (io == Io::kFault) set_failure(memory_fault(Access::kRead));
  if (io == Io::kGone) {
    link.readable = true;
    while (failure_.ok() && receive_from(peer)) continue;  // its last word, if it had one
    if (!link.gone) link_gone(link, false);
  }
  return false;
}

// To the next job that has something to receive from `peer`.
void Exchange::skip_empty(Link& link, std::size_t peer) {
  link.receiving = std::max(link.receiving, first_);
  while (link.receiving < end() && job(link.receiving).bytes_from(peer) == 0) ++link.receiving;
}

bool Exchange::receive_from(std::size_t peer) {
  Link& link = links_[peer];
  if (!link.fd.valid() || link.gone) return false;
  skip_empty(link, peer);
  return link.receiving == end() ? receive_idle(link) : receive_expected(link, peer);
}

// Nothing is expected: the member may be an operation ahead (its header waits here until we get there), or give up, or
// die.
bool Exchange::receive_idle(Link& link) {
  if (!link.readable || link.reader.has_header()) return false;
  const Io io = link.reader.read_header(link.fd.get());
  if (io == Io::kBlocked) link.readable = false;
  if (io == Io::kGone) link_gone(link, link.reader.at_boundary());
  if (io != Io::kDone) return false;
  const Result<Header> header = link.reader.header();
  if (!header.ok() || header->kind != MessageKind::kData) accept_header(link);
  return true;
}

bool Exchange::receive_expected(Link& link, std::size_t peer) {
  Job& job = this->job(link.receiving);
  const std::size_t block = job.bytes_from(peer);
  if (!link.expected) {
    link.expected = header(job, link.received, block);
    link.reader.payload().add(job.operation.segments[0].out + job.out[peer] + link.received, link.expected->bytes);
  }
  if (!link.readable) return false;
  const Io io = link.reader.read(link.fd.get());
  if (io == Io::kBlocked) link.readable = false;
  if (link.reader.has_header() && !accept_header(link)) return true;
  if (io == Io::kFault) set_failure(memory_fault(Access::kWrite));
  if (io == Io::kGone) link_gone(link, false);
  if (io != Io::kDone) return false;
  link.received += link.expected->bytes;
  link.expected.reset();
  link.reader.next();
  if (link.received < block) return true;
  link.received = 0;
  ++link.receiving;
  --job.receives;
  return true;
}

// False when what came is not the message that was expected: then the link or the whole group has ended.
bool Exchange::accept_header(Link& link) {
  const Result<Header> header = link.reader.header();
  if (header.ok() && link.expected && *header == *link.expected) return true;
  if (!header.ok()) {
    set_failure(header.status());
  } else if (header->kind != MessageKind::kData) {
    link.aborted = header->kind == MessageKind::kAbort;
    if (link.aborted) others_gave_up();
    if (link.aborted && header->rank >= 0 && lost_ < 0) lost_ = header->rank;
    link_gone(link, true);
  } else {
    set_failure(wrong_message(link.rank, *header, *link.expected));
  }
  return false;
}

bool Exchange::retire(std::vector<Completed>& completed) {
  bool any = false;
  while (open_ && !jobs_.empty() && jobs_.front().sends == 0 && jobs_.front().receives == 0) {
    const Job& job = jobs_.front();
    const Segment& segment = job.operation.segments[0];
    const std::size_t bytes = job.bytes_to(index_);
    if (bytes > 0) std::memcpy(segment.out + job.out[index_], segment.in + job.in[index_], bytes);
    completed.push_back({.token = job.token, .status = {}});
    jobs_.pop_front();
    ++first_;
    any = true;
  }
  return any;
}

bool Exchange::needed(std::size_t peer) const {
  const Link& link = links_[peer];
  for (std::uint64_t number = first_; number < end(); ++number) {
    if (number >= link.receiving && job(number).bytes_from(peer) > 0) return true;
    if (number >= link.sending && job(number).bytes_to(peer) > 0) return true;
  }
  return false;
}

bool Exchange::needs(int rank) const {
  const auto found = std::ranges::find(links_, rank, &Link::rank);
  return found != links_.end() && needed(static_cast<std::size_t>(found - links_.begin()));
}

void Exchange::find_lost() {
  for (std::size_t peer = 0; peer < links_.size() && lost_ < 0; ++peer) {
    const Link& link = links_[peer];
    if (!link.gone || link.aborted || !needed(peer)) continue;
    if (link.why.ok()) lost_ = link.rank;
    if (!link.why.ok() && !others_gave_up_) set_failure(link.why);
  }
}

void Exchange::on_event(Link& link) {
  link.readable = true;
  link.writable = true;
  news_ = true;
  // A reset is reported whatever is asked for. What it leaves readable is read when there is a place for it; until then
  // the wait set must not report it over and over.
  if (link.interest == 0) unwatch(link);
}

// Readable is of interest while there is a place for what would be read; writable while something waits to be written.
void Exchange::update_interest(Link& link) {
  if (!link.watched) return;
  std::uint32_t interest = 0;
  if (link.expected || !link.reader.has_header()) interest |= static_cast<std::uint32_t>(EPOLLIN);
  if (!link.writer.idle() && !link.writable) interest |= static_cast<std::uint32_t>(EPOLLOUT);
  if (interest == link.interest) return;
  link.interest = interest;
  if (const Status status = wait_set_.modify(link.fd.get(), interest); !status.ok()) set_failure(status);
}

void Exchange::unwatch(Link& link) {
  if (!link.watched) return;
  wait_set_.remove(link.fd.get());
  link.watched = false;
}

void Exchange::link_gone(Link& link, bool between_messages) {
  link.gone = true;
  unwatch(link);
  if (!between_messages && lost_ < 0) lost_ = link.rank;
}

void Exchange::set_failure(const Status& why) {
  if (failure_.ok()) failure_ = why;
}

void Exchange::fail(const Header& farewell, const Status& why, std::vector<Completed>& completed) {
  for (Link& link : links_) {
    unwatch(link);
    if (!link.fd.valid()) continue;
    if (!link.gone && link.writer.idle()) {
      link.writer.begin(farewell);
      link.writer.write(link.fd.get());
    }
    link.gone = true;
  }
  for (const Job& job : jobs_) completed.push_back({.token = job.token, .status = why});
  jobs_.clear();
}

}  // namespace distrun::backend::tcp
