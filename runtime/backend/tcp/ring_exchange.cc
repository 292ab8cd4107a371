#include "runtime/backend/tcp/ring_exchange.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <utility>

#include "runtime/net/bytes/socket.h"

namespace distrun::backend::tcp {
namespace {

// The most messages that one progress() moves, so that the engine can do its other work in between.
constexpr int kMaxRounds = 64;

}  // namespace

void RingLink::unwatch(net::WaitSet* wait_set) {
  if (!watched) return;
  wait_set->remove(fd.get());
  wait_set->remove_link(fd.get());
  watched = false;
}

Status RingLink::set_interest(net::WaitSet* wait_set, std::uint32_t wanted) {
  if (!watched || interest == wanted) return {};
  interest = wanted;
  return wait_set->modify(fd.get(), wanted);
}

RingExchange::RingExchange(Ring ring, Tuning tuning, net::WaitSet* wait_set)
    : seat_{.size = ring.size, .index = ring.index, .rank = ring.rank},
      tuning_(tuning),
      wait_set_(wait_set),
      host_timeout_(ring.host_timeout),
      pool_(tuning.chunk_bytes, 2 * tuning.window) {
  left_.fd = std::move(ring.left);
  left_.peer = ring.left_rank;
  right_.fd = std::move(ring.right);
  right_.peer = ring.right_rank;
  left_.records = std::move(ring.left_records);
  right_.records = std::move(ring.right_records);
  if (left_.records != nullptr) reader_.protect(&left_.records->receive);
  if (right_.records == nullptr) return;
  writer_.protect(&right_.records->send);
  answer_reader_.protect(&right_.records->receive);
}

RingExchange::~RingExchange() {
  left_.unwatch(wait_set_);
  right_.unwatch(wait_set_);
}

Status RingExchange::watch() {
  if (seat_.size == 1) return {};
  left_.interest = EPOLLIN;
  DISTRUN_RETURN_IF_ERROR(wait_set_->add(left_.fd.get(), left_.interest, [this](std::uint32_t) { on_left_event(); }));
  left_.watched = true;
  right_.interest = EPOLLIN;
  DISTRUN_RETURN_IF_ERROR(wait_set_->add(right_.fd.get(), right_.interest, [this](std::uint32_t events) {
    right_.ready = true;
    if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) read_against_stream();
  }));
  right_.watched = true;
  watch_link(left_, reader_);
  watch_link(right_, answer_reader_);
  return {};
}

// The watch lasts as long as the link is in the wait set.
void RingExchange::watch_link(RingLink& link, const MessageReader& reader) {
  wait_set_->add_link(link.fd.get(), {.limit = host_timeout_,
                                      .begun = [&reader] { return reader.begun(); },
                                      .ended =
                                          [this, &link](LinkEnd how, const std::string& text) {
                                            end(link, how, text);
                                            if (!lost_) lost_ = link.ended;
                                          }});
}

Status RingExchange::start(const Operation& operation, std::uint64_t token, std::uint64_t sequence) {
  RingTransfer transfer(operation, {.token = token,
                                    .sequence = sequence,
                                    .size = seat_.size,
                                    .index = seat_.index,
                                    .tuning = tuning_,
                                    .pool = &pool_});
  DISTRUN_RETURN_IF_ERROR(transfer.reserve());
  transfers_.push_back(std::move(transfer));
  return {};
}

bool RingExchange::progress(std::vector<Completed>& completed) {
  bool moved = false;
  for (int round = 0; round < kMaxRounds && failure_.ok(); ++round) {
    const bool sent = send_some();
    const bool received = receive_some();
    if (!sent && !received) break;
    moved = true;
  }
  if (!failure_.ok()) return true;
  moved = retire(completed) || moved;
  find_lost();
  update_interest();
  return moved;
}

bool RingExchange::send_some() {
  if (writer_.idle()) {
    while (sending_ < transfers_.size() && transfers_[sending_].sent_all()) ++sending_;
    if (sending_ == transfers_.size() || !transfers_[sending_].can_send()) return false;
    writer_.begin(transfers_[sending_].next_send());
    transfers_[sending_].add_send(writer_.pieces());
  }
  if (!right_.ready || right_.gone) return false;
  const Io io = writer_.write(right_.fd.get());
  if (io == Io::kDone) {
    transfers_[sending_].end_send();
    return true;
  }
  right_.ready = false;
  if (io == Io::kFault) set_failure(memory_fault(Access::kRead));
  if (breaks_seal(io)) set_failure(broken_seal(io, right_.peer));
  if (io == Io::kGone) {
    read_against_stream();  // read its farewell, if it sent one
    if (!right_.gone) link_gone(right_, false, writer_.error());
  }
  return false;
}

bool RingExchange::receive_some() {
  while (receiving_ < transfers_.size() && transfers_[receiving_].received_all()) ++receiving_;
  if (left_.gone) return false;
  return receiving_ == transfers_.size() ? receive_idle() : receive_expected(transfers_[receiving_]);
}

// No message is expected. The left neighbour may be an operation ahead; then its header waits here until this member
// starts the operation. It may also send a goodbye or die.
bool RingExchange::receive_idle() {
  if (!left_.ready || seat_.size == 1 || reader_.has_header()) return false;
  const Io io = reader_.read_header(left_.fd.get());
  if (breaks_seal(io)) set_failure(broken_seal(io, left_.peer));
  if (io == Io::kBlocked) left_.ready = false;
  if (io == Io::kGone) link_gone(left_, reader_.at_boundary(), reader_.error());
  if (io != Io::kDone) return false;
  const Result<Header> header = reader_.header();
  if (!header.ok()) {
    set_failure(malformed(left_.peer, header.status()));
  } else if (header->kind != MessageKind::kData) {
    on_last_message(*header, left_);
  }
  return true;
}

bool RingExchange::receive_expected(RingTransfer& transfer) {
  if (!expected_) {
    // No chunk is free for the data from the left neighbour. A later send will free one.
    if (!transfer.add_receive(reader_.payload())) return false;
    expected_ = transfer.next_receive();
  }
  if (!left_.ready && !reader_.complete()) return false;
  const Io io = reader_.read(left_.fd.get());
  if (io == Io::kBlocked) left_.ready = false;
  if (reader_.has_header() && !accept_header()) return true;
  if (io == Io::kFault) {
    set_failure(memory_fault(Access::kWrite));
    return true;
  }
  if (breaks_seal(io)) set_failure(broken_seal(io, left_.peer));
  if (io == Io::kGone) link_gone(left_, false, reader_.error());
  if (io != Io::kDone) return false;
  transfer.end_receive();
  reader_.next();
  expected_.reset();
  return true;
}

// Returns false if the received message is not the expected one. Then the left link or the whole group has ended.
bool RingExchange::accept_header() {
  const Result<Header> header = reader_.header();
  if (header.ok() && *header == *expected_) return true;
  if (!header.ok()) {
    set_failure(malformed(left_.peer, header.status()));
  } else if (header->kind != MessageKind::kData) {
    on_last_message(*header, left_);
  } else {
    set_failure(wrong_message(left_.peer, *header, *expected_));
  }
  return false;
}

// The right neighbour never sends data. It sends only a farewell, or closes the connection.
void RingExchange::read_against_stream() {
  if (right_.gone) return;
  const Io io = answer_reader_.read_header(right_.fd.get());
  if (breaks_seal(io)) set_failure(broken_seal(io, right_.peer));
  if (io == Io::kGone) link_gone(right_, answer_reader_.at_boundary(), answer_reader_.error());
  if (io != Io::kDone) return;
  const Result<Header> header = answer_reader_.header();
  if (header.ok() && header->kind != MessageKind::kData) {
    on_last_message(*header, right_);
  } else {
    set_failure(malformed(right_.peer, header.ok()
                                           ? Status(Errc::kProtocol, "data came against the direction of the ring")
                                           : header.status()));
  }
}

bool RingExchange::retire(std::vector<Completed>& completed) {
  bool any = false;
  while (!transfers_.empty() && transfers_.front().complete()) {
    transfers_.front().finish();
    completed.push_back({.token = transfers_.front().token(), .status = {}});
    transfers_.pop_front();
    if (sending_ > 0) --sending_;
    if (receiving_ > 0) --receiving_;
    any = true;
  }
  return any;
}

void RingExchange::on_left_event() {
  left_.ready = true;
  // epoll reports a reset whatever events are set. The data that can still be read is read once there is memory for it.
  // Until then the wait set must not report the reset repeatedly.
  if ((left_.interest & EPOLLIN) == 0) left_.unwatch(wait_set_);
}

// EPOLLIN is set while there is memory for the next data. EPOLLOUT is set while data waits to be sent.
void RingExchange::update_interest() {
  const bool idle = receiving_ == transfers_.size() && !reader_.has_header();
  set_failure(left_.set_interest(wait_set_, idle || expected_ ? static_cast<std::uint32_t>(EPOLLIN) : 0U));
  const bool blocked = !writer_.idle() && !right_.ready;
  set_failure(right_.set_interest(
      wait_set_, static_cast<std::uint32_t>(EPOLLIN) | (blocked ? static_cast<std::uint32_t>(EPOLLOUT) : 0U)));
}

void RingExchange::on_last_message(const Header& header, RingLink& link) {
  link.aborted = header.kind == MessageKind::kAbort;
  // If the peer lost this rank itself, do not record it: the peer's engine reports the cause to all.
  const bool other = header.rank >= 0 && header.rank != seat_.rank;
  if (link.aborted && other && !lost_) lost_ = EndedLink{.peer = header.rank};
  link_gone(link, true, 0);
}

// An end of file between messages may be a goodbye that the socket did not accept. An error is never a goodbye, and is
// recorded at once: the connection may otherwise stay unused for hours.
void RingExchange::link_gone(RingLink& link, bool between_messages, int error) {
  end(link, net::link_end_of(error), error == 0 ? "" : net::link_end_text(error));
  if ((!between_messages || error != 0) && !lost_) lost_ = link.ended;
}

void RingExchange::end(RingLink& link, LinkEnd how, std::string text) {
  link.gone = true;
  link.ended = {.peer = link.peer, .end = how, .how = std::move(text)};
  link.unwatch(wait_set_);
}

// A neighbour that closed its group is lost only if an operation still needs it. The same holds if its connection ended
// between two messages, because the socket may not have accepted the goodbye. A neighbour that aborted is not recorded
// here: its message or its engine reports the cause.
void RingExchange::find_lost() {
  if (lost_) return;
  if (left_.gone && !left_.aborted && receiving_ < transfers_.size()) lost_ = left_.ended;
  if (right_.gone && !right_.aborted && sending_ < transfers_.size()) lost_ = right_.ended;
}

void RingExchange::set_failure(const Status& why) {
  if (failure_.ok()) failure_ = why;
}

void RingExchange::send_last_message(const Header& last_message) {
  if (seat_.size == 1) return;
  MessageWriter answer;
  answer.protect(left_.records == nullptr ? nullptr : &left_.records->send);
  answer.begin(last_message);
  if (!left_.gone) answer.write(left_.fd.get());
  if (right_.gone || !writer_.idle()) return;
  writer_.begin(last_message);
  writer_.write(right_.fd.get());
}

void RingExchange::fail(const Header& last_message, const Status& why, std::vector<Completed>& completed) {
  send_last_message(last_message);
  for (RingLink* link : {&left_, &right_}) {
    link->unwatch(wait_set_);
    link->gone = true;
    if (link->fd.valid()) ::shutdown(link->fd.get(), SHUT_RDWR);
  }
  for (const RingTransfer& transfer : transfers_) completed.push_back({.token = transfer.token(), .status = why});
  transfers_.clear();
  sending_ = receiving_ = 0;
}

}  // namespace distrun::backend::tcp
