#include "runtime/backend/tcp/tcp_backend.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace distrun::backend::tcp {
namespace {

// Messages that one progress() moves at most, so that the engine gets to its other work in between.
constexpr int kMaxRounds = 64;

// Of the all-gather that an all-to-all's connections need; the engine counts up from 1.
constexpr std::uint64_t kOwnToken = ~std::uint64_t{0};

}  // namespace

const Capabilities& tcp_capabilities() {
  static const Capabilities capabilities{
      .ops = bits_of({OpKind::kAllreduce, OpKind::kAllgather, OpKind::kBroadcast, OpKind::kBarrier, OpKind::kAlltoall,
                      OpKind::kReducescatter, OpKind::kJoin}),
      .dtypes = (1U << kNumDTypes) - 1,
      .devices = 1U << static_cast<unsigned>(DeviceType::kCpu),
      .scatter_gather = true};
  return capabilities;
}

Result<std::unique_ptr<Backend>> TcpBackend::create(TcpOptions options) {
  std::unique_ptr<TcpBackend> backend(new TcpBackend(std::move(options)));  // the constructor is private
  DISTRUN_RETURN_IF_ERROR(backend->watch_links());
  return std::unique_ptr<Backend>(std::move(backend));
}

TcpBackend::TcpBackend(TcpOptions options)
    : size_(options.ring.size),
      index_(options.ring.index),
      group_(std::move(options.group)),
      services_(std::move(options.services)),
      tuning_(options.tuning),
      wait_set_(services_.wait_set),
      pool_(options.tuning.chunk_bytes, 2 * options.tuning.window) {
  left_.fd = std::move(options.ring.left);
  left_.peer = options.ring.left_rank;
  right_.fd = std::move(options.ring.right);
  right_.peer = options.ring.right_rank;
}

TcpBackend::~TcpBackend() {
  if (failed_.ok()) tell_neighbours({.kind = MessageKind::kGoodbye});
  unwatch(left_);
  unwatch(right_);
}

Status TcpBackend::watch_links() {
  if (size_ == 1) return {};
  left_.interest = EPOLLIN;
  DISTRUN_RETURN_IF_ERROR(wait_set_->add(left_.fd.get(), left_.interest, [this](std::uint32_t) { on_left_event(); }));
  left_.watched = true;
  right_.interest = EPOLLIN;
  DISTRUN_RETURN_IF_ERROR(wait_set_->add(right_.fd.get(), right_.interest, [this](std::uint32_t events) {
    right_.ready = true;
    if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) read_against_stream();
  }));
  right_.watched = true;
  return {};
}

Status TcpBackend::start(const Operation& operation, std::uint64_t token) {
  if (!failed_.ok()) return failed_;
  if (abort_.requested()) return abort_.why();
  if (operation.device.type != DeviceType::kCpu) {
    return {Errc::kUnsupported, "The backend tcp works on CPU memory only; copy the tensor to the CPU first."};
  }
  const bool exchanges = operation.kind == OpKind::kAlltoall && size_ > 1;
  const Status status = exchanges ? start_exchange(operation, token) : start_on_ring(operation, token);
  if (status.ok()) return {};
  // The others have this operation in their order, so none that was started here later would meet its own there.
  fail(status.with_context("tcp"));
  return failed_;
}

Status TcpBackend::start_on_ring(const Operation& operation, std::uint64_t token) {
  Job job(operation, {.token = token,
                      .sequence = next_sequence_++,
                      .size = size_,
                      .index = index_,
                      .tuning = tuning_,
                      .pool = &pool_});
  DISTRUN_RETURN_IF_ERROR(job.reserve());
  jobs_.push_back(std::move(job));
  return {};
}

Status TcpBackend::start_exchange(const Operation& operation, std::uint64_t token) {
  if (exchange_ == nullptr) DISTRUN_RETURN_IF_ERROR(make_mesh());
  exchange_->start(operation, token, next_sequence_++);
  return {};
}

// All members get here together: at the first all-to-all in their common order.
Status TcpBackend::make_mesh() {
  exchange_ = std::make_unique<Exchange>(group_.members, index_, tuning_.chunk_bytes, *wait_set_);
  auto mesh =
      Mesh::open(group_, services_,
                 {.connected = [this](std::size_t peer, Fd fd) { exchange_->connected(peer, std::move(fd)); },
                  .failed = [this](std::size_t peer, const Status& why) { exchange_->unreachable(peer, why); }});
  if (!mesh.ok()) return mesh.status();
  mesh_ = *std::move(mesh);
  return start_on_ring(mesh_->addresses(), kOwnToken);
}

bool TcpBackend::progress() {
  if (!failed_.ok()) return false;
  if (abort_.requested()) {
    fail(abort_.why());
    return true;
  }
  bool moved = false;
  for (int round = 0; round < kMaxRounds && failed_.ok(); ++round) {
    const bool sent = send_some();
    const bool received = receive_some();
    if (!sent && !received) break;
    moved = true;
  }
  if (!failed_.ok()) return true;
  moved = retire_jobs() || moved;
  if (exchange_ != nullptr) {
    moved = exchange_->progress(completed_) || moved;
    if (!exchange_->failure().ok()) {
      fail(exchange_->failure());
      return true;
    }
  }
  find_lost_peer();
  update_interest();
  return moved;
}

void TcpBackend::completed(std::vector<Completed>& out) {
  out.insert(out.end(), std::make_move_iterator(completed_.begin()), std::make_move_iterator(completed_.end()));
  completed_.clear();
}

void TcpBackend::abort(const Status& why) {
  abort_.set(why);
  if (wait_set_ != nullptr) wait_set_->wake();
}

bool TcpBackend::send_some() {
  if (writer_.idle()) {
    while (sending_ < jobs_.size() && jobs_[sending_].sent_all()) ++sending_;
    if (sending_ == jobs_.size() || !jobs_[sending_].can_send()) return false;
    writer_.begin(jobs_[sending_].next_send());
    jobs_[sending_].add_send(writer_.pieces());
  }
  if (!right_.ready || right_.gone) return false;
  const Io io = writer_.write(right_.fd.get());
  if (io == Io::kDone) {
    jobs_[sending_].end_send();
    return true;
  }
  right_.ready = false;
  if (io == Io::kFault) fail(memory_fault(Access::kRead));
  if (io == Io::kGone) {
    read_against_stream();  // its last word, if it had one
    if (!right_.gone) link_gone(right_, false);
  }
  return false;
}

bool TcpBackend::receive_some() {
  while (receiving_ < jobs_.size() && jobs_[receiving_].received_all()) ++receiving_;
  if (left_.gone) return false;
  return receiving_ == jobs_.size() ? receive_idle() : receive_expected(jobs_[receiving_]);
}

// Nothing is expected: the left neighbour may be an operation ahead (its header waits here until we get there), or say
// goodbye, or die.
bool TcpBackend::receive_idle() {
  if (!left_.ready || size_ == 1 || reader_.has_header()) return false;
  const Io io = reader_.read_header(left_.fd.get());
  if (io == Io::kBlocked) left_.ready = false;
  if (io == Io::kGone) link_gone(left_, reader_.at_boundary());
  if (io != Io::kDone) return false;
  const Result<Header> header = reader_.header();
  if (!header.ok()) {
    fail(header.status());
  } else if (header->kind != MessageKind::kData) {
    on_farewell(*header, left_);
  }
  return true;
}

bool TcpBackend::receive_expected(Job& job) {
  if (!expected_) {
    stalled_ = !job.add_receive(reader_.payload());
    if (stalled_) return false;
    expected_ = job.next_receive();
  }
  if (!left_.ready && !reader_.complete()) return false;
  const Io io = reader_.read(left_.fd.get());
  if (io == Io::kBlocked) left_.ready = false;
  if (reader_.has_header() && !accept_header()) return true;
  if (io == Io::kFault) {
    fail(memory_fault(Access::kWrite));
    return true;
  }
  if (io == Io::kGone) link_gone(left_, false);
  if (io != Io::kDone) return false;
  job.end_receive();
  reader_.next();
  expected_.reset();
  return true;
}

// False when what came is not the message that was expected: then the left link or the whole group has ended.
bool TcpBackend::accept_header() {
  const Result<Header> header = reader_.header();
  if (header.ok() && *header == *expected_) return true;
  if (!header.ok()) {
    fail(header.status());
  } else if (header->kind != MessageKind::kData) {
    on_farewell(*header, left_);
  } else {
    fail(wrong_message(left_.peer, *header, *expected_));
  }
  return false;
}

// The right neighbour never sends data: what comes from there is a farewell, or the end of file.
void TcpBackend::read_against_stream() {
  if (right_.gone) return;
  const Io io = answer_reader_.read_header(right_.fd.get());
  if (io == Io::kGone) link_gone(right_, answer_reader_.at_boundary());
  if (io != Io::kDone) return;
  const Result<Header> header = answer_reader_.header();
  if (header.ok() && header->kind != MessageKind::kData) {
    on_farewell(*header, right_);
  } else {
    fail({Errc::kProtocol, "tcp: rank " + std::to_string(right_.peer) +
                               " sent data against the ring's direction. This "
                               "is a bug in distrun; please report it."});
  }
}

bool TcpBackend::retire_jobs() {
  bool any = false;
  while (!jobs_.empty() && jobs_.front().complete()) {
    jobs_.front().finish();
    if (jobs_.front().token() == kOwnToken) {
      mesh_->connect();
      exchange_->open();
    } else {
      completed_.push_back({.token = jobs_.front().token(), .status = {}});
    }
    jobs_.pop_front();
    if (sending_ > 0) --sending_;
    if (receiving_ > 0) --receiving_;
    any = true;
  }
  return any;
}

void TcpBackend::on_left_event() {
  left_.ready = true;
  // A reset is reported whatever is asked for. What it leaves readable is read when there is a place for it; until then
  // the wait set must not report it over and over.
  if ((left_.interest & EPOLLIN) == 0) unwatch(left_);
}

void TcpBackend::unwatch(Link& link) {
  if (!link.watched) return;
  wait_set_->remove(link.fd.get());
  link.watched = false;
}

void TcpBackend::set_interest(Link& link, std::uint32_t interest) {
  if (!link.watched || link.interest == interest) return;
  link.interest = interest;
  if (const Status status = wait_set_->modify(link.fd.get(), interest); !status.ok()) fail(status);
}

// Readable is of interest while there is a place for what would be read; writable while something waits to be written.
void TcpBackend::update_interest() {
  const bool idle = receiving_ == jobs_.size() && !reader_.has_header();
  set_interest(left_, idle || expected_ ? static_cast<std::uint32_t>(EPOLLIN) : 0U);
  const bool blocked = !writer_.idle() && !right_.ready;
  set_interest(right_, static_cast<std::uint32_t>(EPOLLIN) | (blocked ? static_cast<std::uint32_t>(EPOLLOUT) : 0U));
}

void TcpBackend::on_farewell(const Header& header, Link& link) {
  link.aborted = header.kind == MessageKind::kAbort;
  if (link.aborted && exchange_ != nullptr) exchange_->others_gave_up();
  if (link.aborted && header.rank >= 0 && lost_ < 0) lost_ = header.rank;
  link_gone(link, true);
}

void TcpBackend::link_gone(Link& link, bool between_messages) {
  link.gone = true;
  unwatch(link);
  if (!between_messages && lost_ < 0) lost_ = link.peer;
}

// A neighbour that closed its group is missed only by an operation that needs it, and so is one whose connection ended
// between two messages: the goodbye is sent only as far as the socket takes it. One that gave up has told, or its
// engine will tell, whose fault it is.
void TcpBackend::find_lost_peer() {
  if (lost_ >= 0) return;
  if (left_.gone && !left_.aborted && receiving_ < jobs_.size()) lost_ = left_.peer;
  if (right_.gone && !right_.aborted && sending_ < jobs_.size()) lost_ = right_.peer;
  if (lost_ >= 0 || exchange_ == nullptr) return;
  lost_ = exchange_->lost();
  // It has not connected, and will not.
  const bool awaited = left_.gone && !left_.aborted && mesh_->awaits(left_.peer);
  if (lost_ < 0 && awaited && exchange_->needs(left_.peer)) lost_ = left_.peer;
}

// After this no byte of any operation is read or written here: the system has its own copy of what was sent.
void TcpBackend::fail(const Status& why) {
  failed_ = why;
  const ErrorInfo& info = why.info();
  const bool names_rank = info.code == Errc::kRankLost && !info.ranks.empty();
  const Header farewell{.kind = MessageKind::kAbort, .rank = names_rank ? info.ranks.front() : lost_};
  if (mesh_ != nullptr) mesh_->stop();
  if (exchange_ != nullptr) exchange_->fail(farewell, why, completed_);
  tell_neighbours(farewell);
  for (Link* link : {&left_, &right_}) {
    unwatch(*link);
    link->gone = true;
    if (link->fd.valid()) ::shutdown(link->fd.get(), SHUT_RDWR);
  }
  for (const Job& job : jobs_) {
    if (job.token() != kOwnToken) completed_.push_back({.token = job.token(), .status = why});
  }
  jobs_.clear();
  sending_ = receiving_ = 0;
}

// As far as the sockets take it: in the middle of a message the right neighbour sees only the end of file.
void TcpBackend::tell_neighbours(const Header& farewell) {
  if (size_ == 1) return;
  MessageWriter answer;
  answer.begin(farewell);
  if (!left_.gone) answer.write(left_.fd.get());
  if (right_.gone || !writer_.idle()) return;
  writer_.begin(farewell);
  writer_.write(right_.fd.get());
}

}  // namespace distrun::backend::tcp
