#include "runtime/backend/tcp/tcp_backend.h"

#include <iterator>
#include <utility>

namespace distrun::backend::tcp {
namespace {

// The token of the all-gather that the connections of all-to-alls need. The engine's tokens count up from 1.
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
  DISTRUN_RETURN_IF_ERROR(backend->ring_.watch());
  return std::unique_ptr<Backend>(std::move(backend));
}

TcpBackend::TcpBackend(TcpOptions options)
    : group_(std::move(options.group)),
      services_(std::move(options.services)),
      chunk_bytes_(options.tuning.chunk_bytes),
      protection_(options.ring.protection),
      ring_(std::move(options.ring), options.tuning, services_.wait_set) {}

TcpBackend::~TcpBackend() {
  if (failed_.ok()) ring_.send_last_message({.kind = MessageKind::kGoodbye});
}

Status TcpBackend::start(const Operation& operation, std::uint64_t token) {
  if (!failed_.ok()) return failed_;
  if (abort_.requested()) return abort_.why();
  if (operation.device.type != DeviceType::kCpu) {
    return {Errc::kUnsupported, "the backend tcp needs tensors in CPU memory. Copy the tensor to the CPU first"};
  }
  const bool exchanges = operation.kind == OpKind::kAlltoall && group_.members.size() > 1;
  const Status status = exchanges ? start_exchange(operation, token) : ring_.start(operation, token, next_sequence_++);
  if (status.ok()) return {};
  // The other members will run this operation in their order. So no later operation could match here.
  fail(status.with_context("tcp"));
  return failed_;
}

Status TcpBackend::start_exchange(const Operation& operation, std::uint64_t token) {
  if (exchange_ == nullptr) DISTRUN_RETURN_IF_ERROR(make_mesh());
  exchange_->start(operation, token, next_sequence_++);
  return {};
}

// All members call this at the same point of the common order: at the first all-to-all.
Status TcpBackend::make_mesh() {
  exchange_ = std::make_unique<Exchange>(group_.members, static_cast<std::size_t>(group_.index), chunk_bytes_,
                                         *services_.wait_set, duration_of(services_.world->host_timeout));
  auto mesh =
      Mesh::open(group_, services_, protection_,
                 {.connected = [this](std::size_t peer, DataLink link) { exchange_->connected(peer, std::move(link)); },
                  .failed = [this](std::size_t peer, const Status& why) { exchange_->unreachable(peer, why); }});
  if (!mesh.ok()) return mesh.status();
  mesh_ = *std::move(mesh);
  gathers_addresses_ = true;
  return ring_.start(mesh_->addresses(), kOwnToken, next_sequence_++);
}

bool TcpBackend::progress() {
  if (!failed_.ok()) return false;
  if (abort_.requested()) {
    fail(abort_.why());
    return true;
  }
  bool moved = ring_.progress(completed_);
  if (!ring_.failure().ok()) {
    fail(ring_.failure());
    return true;
  }
  if (gathers_addresses_ && take_own()) {
    mesh_->connect();
    exchange_->open();
  }
  if (exchange_ != nullptr) {
    if (ring_.neighbour_gave_up()) exchange_->others_gave_up();
    moved = exchange_->progress(completed_) || moved;
    if (!exchange_->failure().ok()) {
      fail(exchange_->failure());
      return true;
    }
  }
  find_lost_peer();
  return moved;
}

// Whether the all-gather of the addresses has ended. Removes it from completed_, because the engine does not know it.
bool TcpBackend::take_own() {
  if (std::erase_if(completed_, [](const Completed& one) { return one.token == kOwnToken; }) == 0) return false;
  gathers_addresses_ = false;
  return true;
}

void TcpBackend::completed(std::vector<Completed>& out) {
  out.insert(out.end(), std::make_move_iterator(completed_.begin()), std::make_move_iterator(completed_.end()));
  completed_.clear();
}

void TcpBackend::abort(const Status& why) {
  abort_.set(why);
  if (services_.wait_set != nullptr) services_.wait_set->wake();
}

void TcpBackend::find_lost_peer() {
  if (!lost_) lost_ = ring_.lost();
  if (lost_ || exchange_ == nullptr) return;
  lost_ = exchange_->lost();
  // The left neighbour has not connected to the mesh, and it no longer can.
  const EndedLink* const left = ring_.left_gone();
  if (!lost_ && left != nullptr && mesh_->awaits(left->peer) && exchange_->needs(left->peer)) lost_ = *left;
}

void TcpBackend::fail(const Status& why) {
  failed_ = why;
  if (!lost_) lost_ = ring_.lost();
  const ErrorInfo& info = why.info();
  // Report it in an idle group too, whose next operation may come much later.
  const bool by_member = info.link != LinkEnd::kUnknown && !info.ranks.empty();
  if (by_member && (!lost_ || says(info.link) > says(lost_->end))) {
    lost_ = EndedLink{.peer = info.ranks.front(), .end = info.link, .how = info.cause};
  }
  const bool names_rank = info.code == Errc::kRankLost && !info.ranks.empty();
  const int cause = names_rank ? info.ranks.front() : lost_ ? lost_->peer : -1;
  const Header last_message{.kind = MessageKind::kAbort, .rank = cause};
  if (mesh_ != nullptr) mesh_->stop();
  if (exchange_ != nullptr) exchange_->fail(last_message, why, completed_);
  ring_.fail(last_message, why, completed_);
  take_own();
}

}  // namespace distrun::backend::tcp
