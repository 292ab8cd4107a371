#include "runtime/backend/tcp/exchange.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/net/bytes/socket.h"

namespace distrun::backend::tcp {
namespace {

// The most messages per member and direction that one progress() moves, so that the engine can do its other work.
constexpr int kMaxTurns = 16;

// Rounds in flight together. Enough that a late member does not block the rest, and few enough that not all members
// send to the same one.
constexpr std::size_t kRounds = 4;

}  // namespace

Exchange::Exchange(const std::vector<int>& members, std::size_t index, std::size_t chunk_bytes, net::WaitSet& wait_set,
                   Duration host_timeout)
    : index_(index),
      chunk_bytes_(chunk_bytes),
      wait_set_(wait_set),
      host_timeout_(host_timeout),
      links_(members.size()) {
  for (std::size_t peer = 0; peer < links_.size(); ++peer) links_[peer].rank = members[peer];
}

Exchange::~Exchange() {
  for (Link& link : links_) unwatch(link);
}

void Exchange::start(const Operation& operation, std::uint64_t token, std::uint64_t sequence) {
  transfers_.push(make_pairwise(operation, token, sequence, index_, links_.size()));
}

void Exchange::connected(std::size_t peer, DataLink made) {
  Link& link = links_[peer];
  link.fd = GuardedFd(std::move(made.fd));
  link.records = std::move(made.records);
  if (link.records != nullptr) {
    link.reader.protect(&link.records->receive);
    link.writer.protect(&link.records->send);
  }
  link.interest = EPOLLIN;
  news_ = true;
  const Status status = wait_set_.add(link.fd.get(), link.interest, [this, &link](std::uint32_t) { on_event(link); });
  link.watched = status.ok();
  if (status.ok()) {
    wait_set_.add_link(link.fd.get(), {.limit = host_timeout_,
                                       .begun = [&link] { return link.reader.begun(); },
                                       .ended =
                                           [this, &link](LinkEnd how, const std::string& text) {
                                             end(link, how, text);
                                             if (!lost_) lost_ = link.ended;
                                             news_ = true;
                                           }});
  }
  set_failure(status);
}

void Exchange::unreachable(std::size_t peer, const Status& why) {
  links_[peer].why = why;
  links_[peer].gone = true;
  news_ = true;
}

bool Exchange::progress(std::vector<Completed>& completed) {
  if (!failure_.ok() || (transfers_.empty() && !news_)) return false;
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

// Sends one message to each of the next members, in the order of the rounds, whose block is not complete.
bool Exchange::send_some() {
  const std::uint64_t number = transfers_.first_to_send();
  if (number == transfers_.end()) return false;
  const PairwiseTransfer& sending = transfers_[number];
  bool moved = false;
  std::size_t under_way = 0;
  for (std::size_t round = 1; round < links_.size() && under_way < kRounds; ++round) {
    const std::size_t peer = member_after(round);
    Link& link = links_[peer];
    if (link.sending > number || sending.bytes_to(peer) == 0) continue;
    link.sending = number;
    ++under_way;
    moved = send_to(peer) || moved;
  }
  return moved;
}

bool Exchange::send_to(std::size_t peer) {
  Link& link = links_[peer];
  if (!link.fd.valid() || link.gone || !link.writable) return false;
  PairwiseTransfer& transfer = transfers_[link.sending];
  const std::size_t block = transfer.bytes_to(peer);
  const Header header = transfer.header(link.sent, block, chunk_bytes_);
  if (link.writer.idle()) {
    link.writer.begin(header);
    link.writer.pieces().add(transfer.operation.segments[0].in + transfer.in[peer] + link.sent, header.bytes);
  }
  const Io io = link.writer.write(link.fd.get());
  if (io == Io::kDone) {
    link.sent += header.bytes;
    if (link.sent < block) return true;
    link.sent = 0;
    ++link.sending;
    --transfer.sends;
    return true;
  }
  link.writable = false;
  if (io == Io::kFault) set_failure(memory_fault(Access::kRead));
  if (breaks_seal(io)) set_failure(broken_seal(io, link.rank));
  if (io == Io::kGone) {
    link.readable = true;
    while (failure_.ok() && receive_from(peer)) continue;  // read its farewell, if it sent one
    if (!link.gone) link_gone(link, false, link.writer.error());
  }
  return false;
}

// Moves the link to the next transfer that receives something from `peer`.
void Exchange::skip_empty(Link& link, std::size_t peer) {
  link.receiving = std::max(link.receiving, transfers_.first());
  while (link.receiving < transfers_.end() && transfers_[link.receiving].bytes_from(peer) == 0) ++link.receiving;
}

bool Exchange::receive_from(std::size_t peer) {
  Link& link = links_[peer];
  if (!link.fd.valid() || link.gone) return false;
  skip_empty(link, peer);
  return link.receiving == transfers_.end() ? receive_idle(link) : receive_expected(link, peer);
}

// No message is expected. The member may be an operation ahead; then its header waits here until this member starts the
// operation. It may also abort or die.
bool Exchange::receive_idle(Link& link) {
  if (!link.readable || link.reader.has_header()) return false;
  const Io io = link.reader.read_header(link.fd.get());
  if (breaks_seal(io)) set_failure(broken_seal(io, link.rank));
  if (io == Io::kBlocked) link.readable = false;
  if (io == Io::kGone) link_gone(link, link.reader.at_boundary(), link.reader.error());
  if (io != Io::kDone) return false;
  const Result<Header> header = link.reader.header();
  if (!header.ok() || header->kind != MessageKind::kData) accept_header(link);
  return true;
}

bool Exchange::receive_expected(Link& link, std::size_t peer) {
  PairwiseTransfer& transfer = transfers_[link.receiving];
  const std::size_t block = transfer.bytes_from(peer);
  if (!link.expected) {
    link.expected = transfer.header(link.received, block, chunk_bytes_);
    link.reader.payload().add(transfer.operation.segments[0].out + transfer.out[peer] + link.received,
                              link.expected->bytes);
  }
  if (!link.readable) return false;
  const Io io = link.reader.read(link.fd.get());
  if (io == Io::kBlocked) link.readable = false;
  if (link.reader.has_header() && !accept_header(link)) return true;
  if (io == Io::kFault) set_failure(memory_fault(Access::kWrite));
  if (breaks_seal(io)) set_failure(broken_seal(io, link.rank));
  if (io == Io::kGone) link_gone(link, false, link.reader.error());
  if (io != Io::kDone) return false;
  link.received += link.expected->bytes;
  link.expected.reset();
  link.reader.next();
  if (link.received < block) return true;
  link.received = 0;
  ++link.receiving;
  --transfer.receives;
  return true;
}

// Returns false if the received message is not the expected one. Then the link or the whole group has ended.
bool Exchange::accept_header(Link& link) {
  const Result<Header> header = link.reader.header();
  if (header.ok() && link.expected && *header == *link.expected) return true;
  if (!header.ok()) {
    set_failure(malformed(link.rank, header.status()));
  } else if (header->kind != MessageKind::kData) {
    link.aborted = header->kind == MessageKind::kAbort;
    if (link.aborted) others_gave_up();
    // If the peer lost this rank itself, do not record it: the peer's engine reports the cause to all.
    const bool other = header->rank >= 0 && header->rank != links_[index_].rank;
    if (link.aborted && other && !lost_) lost_ = EndedLink{.peer = header->rank};
    link_gone(link, true, 0);
  } else {
    set_failure(wrong_message(link.rank, *header, *link.expected));
  }
  return false;
}

bool Exchange::retire(std::vector<Completed>& completed) {
  bool any = false;
  while (open_ && !transfers_.empty()) {
    const PairwiseTransfer& transfer = transfers_[transfers_.first()];
    if (transfer.sends > 0 || transfer.receives > 0) break;
    const Segment& segment = transfer.operation.segments[0];
    const std::size_t bytes = transfer.bytes_to(index_);
    if (bytes > 0) std::memcpy(segment.out + transfer.out[index_], segment.in + transfer.in[index_], bytes);
    completed.push_back({.token = transfer.token, .status = {}});
    transfers_.pop();
    any = true;
  }
  return any;
}

bool Exchange::needed(std::size_t peer) const {
  const Link& link = links_[peer];
  for (std::uint64_t number = transfers_.first(); number < transfers_.end(); ++number) {
    if (number >= link.receiving && transfers_[number].bytes_from(peer) > 0) return true;
    if (number >= link.sending && transfers_[number].bytes_to(peer) > 0) return true;
  }
  return false;
}

bool Exchange::needs(int rank) const {
  const auto found = std::ranges::find(links_, rank, &Link::rank);
  return found != links_.end() && needed(static_cast<std::size_t>(found - links_.begin()));
}

void Exchange::find_lost() {
  for (std::size_t peer = 0; peer < links_.size() && !lost_; ++peer) {
    const Link& link = links_[peer];
    if (!link.gone || link.aborted || !needed(peer)) continue;
    if (link.why.ok()) lost_ = link.ended;
    if (!link.why.ok() && !others_gave_up_) set_failure(link.why);
  }
}

void Exchange::on_event(Link& link) {
  link.readable = true;
  link.writable = true;
  news_ = true;
  // epoll reports a reset whatever events are set. The data that can still be read is read once there is memory for it.
  // Until then the wait set must not report the reset repeatedly.
  if (link.interest == 0) unwatch(link);
}

// EPOLLIN is set while there is memory for the next data. EPOLLOUT is set while data waits to be sent.
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
  wait_set_.remove_link(link.fd.get());
  link.watched = false;
}

void Exchange::link_gone(Link& link, bool between_messages, int error) {
  end(link, net::link_end_of(error), error == 0 ? "" : net::link_end_text(error));
  if ((!between_messages || error != 0) && !lost_) lost_ = link.ended;
}

void Exchange::end(Link& link, LinkEnd how, std::string text) {
  link.gone = true;
  link.ended = {.peer = link.rank, .end = how, .how = std::move(text)};
  unwatch(link);
}

void Exchange::set_failure(const Status& why) {
  if (failure_.ok()) failure_ = why;
}

void Exchange::fail(const Header& last_message, const Status& why, std::vector<Completed>& completed) {
  for (Link& link : links_) {
    unwatch(link);
    if (!link.fd.valid()) continue;
    if (!link.gone && link.writer.idle()) {
      link.writer.begin(last_message);
      link.writer.write(link.fd.get());
    }
    link.gone = true;
  }
  for (std::uint64_t number = transfers_.first(); number < transfers_.end(); ++number) {
    completed.push_back({.token = transfers_[number].token, .status = why});
  }
  transfers_.clear();
}

}  // namespace distrun::backend::tcp
