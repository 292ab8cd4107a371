#include "runtime/backend/shm/shm_backend.h"

#include <algorithm>
#include <iterator>

#include "runtime/backend/shm/paths.h"

namespace distrun::backend::shm {
namespace {

// Chunks packed before the first one is unpacked. This hides small delays of a peer, and both chunks still fit the L2
// cache.
constexpr std::uint64_t kLag = 2;
// The engine has other work too, so one call moves at most this many chunks by one stage.
constexpr int kStepsPerCall = 16;

std::size_t output_elements(const Operation& operation, std::size_t self, std::size_t members) {
  const auto& counts = operation.counts;
  if (operation.kind == OpKind::kReducescatter) return counts[self];
  std::size_t total = 0;
  if (counts.empty()) {
    for (const Segment& segment : operation.segments) total += segment.count;
  } else {
    const bool alltoall = operation.kind == OpKind::kAlltoall;
    for (std::size_t i = 0; i < members; ++i) total += counts[alltoall ? i * members + self : i];
  }
  return total;
}

}  // namespace

Capabilities shm_capabilities() {
  return {.ops = (1U << kNumOpKinds) - 1,
          .dtypes = (1U << kNumDTypes) - 1,
          .devices = 1U << static_cast<unsigned>(DeviceType::kCpu),
          .scatter_gather = true,
          .revocable = true,
          .moved_by = MovedBy::kMemory};
}

ShmBackend::ShmBackend(const ShmOptions& options)
    : link_(options.link),
      members_(options.members),
      slot_bytes_(options.slot_bytes),
      large_output_(options.large_output),
      crowded_(options.crowded),
      memory_(options.memory),
      member_(options.link, options.members, options.self,
              Window(memory_.bytes, options.members.size(), options.slot_bytes)) {}

Status ShmBackend::start(const Operation& operation, std::uint64_t token) {
  if (aborted_.requested()) return aborted_.why();
  if (operation.device.type != DeviceType::kCpu) {
    return {Errc::kUnsupported, "the backend shm needs tensors in CPU memory. Copy the tensor to the CPU first"};
  }
  const Plan plan = plan_of(operation, members_.size(), slot_bytes_, crowded_);
  if (plan.path == Path::kTiny) {
    transfers_.emplace_back(operation, token, plan, next_tiny_++);
    return {};
  }
  WindowTransfer& transfer = transfers_.emplace_back(operation, token, plan, next_chunk_);
  next_chunk_ += plan.chunks;
  const std::size_t elements = output_elements(operation, member_.self(), members_.size());
  transfer.large_output = elements * transfer.unit >= large_output_;
  stores_.admit(transfer);
  return {};
}

bool ShmBackend::progress() {
  if (aborted_.requested()) return fail_all();
  bool moved = false;
  // After an abort, the next call completes the operations with the error.
  for (int steps = 0; steps < kStepsPerCall && !transfers_.empty() && !aborted_.requested() && step(); ++steps) {
    moved = true;
  }
  return moved;
}

void ShmBackend::completed(std::vector<Completed>& out) {
  out.insert(out.end(), std::make_move_iterator(finished_.begin()), std::make_move_iterator(finished_.end()));
  finished_.clear();
}

std::optional<EndedLink> ShmBackend::lost_peer() const {
  const auto lost = link_->lost();
  if (!lost || std::find(members_.begin(), members_.end(), *lost) == members_.end()) return std::nullopt;
  return EndedLink{.peer = *lost, .end = LinkEnd::kClosed};
}

bool ShmBackend::fail_all() {
  const bool any = !transfers_.empty();
  for (const WindowTransfer& transfer : transfers_)
    finished_.push_back({.token = transfer.token, .status = aborted_.why()});
  transfers_.clear();
  return any;
}

// Work for which other members wait comes first. Unpacking waits until the lag is reached, unless there is nothing else
// to do.
bool ShmBackend::step() {
  if (retire()) return true;
  const bool lagging = chunks_packed_ - chunks_unpacked_ >= kLag;
  if (reduce_next()) return true;
  if (lagging && unpack_next()) return true;
  if (pack_next()) return true;
  return !lagging && unpack_next();
}

bool ShmBackend::retire() {
  const WindowTransfer& front = transfers_.front();
  if (front.unpacked < front.plan.chunks) return false;
  finished_.push_back({.token = front.token, .status = {}});
  transfers_.pop_front();
  if (packing_ > 0) --packing_;
  if (reducing_ > 0) --reducing_;
  return true;
}

bool ShmBackend::pack_next() {
  while (packing_ < transfers_.size() && transfers_[packing_].packed == transfers_[packing_].plan.chunks) ++packing_;
  if (packing_ == transfers_.size()) return false;
  WindowTransfer& transfer = transfers_[packing_];
  const std::uint64_t before = transfer.packed;
  if (!transfer.steps->pack(member_, stores_, transfer)) return false;
  if (transfer.in_slots()) chunks_packed_ += transfer.packed - before;
  return true;
}

bool ShmBackend::reduce_next() {
  while (reducing_ < transfers_.size() && transfers_[reducing_].reduced == transfers_[reducing_].plan.chunks) {
    ++reducing_;
  }
  if (reducing_ == transfers_.size()) return false;
  WindowTransfer& transfer = transfers_[reducing_];
  return transfer.steps->reduce(member_, stores_, transfer);
}

bool ShmBackend::unpack_next() {
  WindowTransfer& transfer = transfers_.front();
  if (!transfer.steps->unpack(member_, stores_, transfer)) return false;
  if (transfer.in_slots()) ++chunks_unpacked_;
  return true;
}

}  // namespace distrun::backend::shm
