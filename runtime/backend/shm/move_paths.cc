// The paths of operations that move blocks, and what all paths have in common: kBroadcast, kAllgather, kScatter,
// kExchange.
#include <algorithm>
#include <numeric>

#include "runtime/backend/shm/path_parts.h"

namespace distrun::backend::shm {

void pack_elements(WindowMember& member, WindowTransfer& transfer, std::size_t count, std::byte* to, bool stream) {
  const DType dtype = transfer.operation.dtype;
  const double factor = transfer.operation.kind == OpKind::kAllreduce ? transfer.operation.prescale : 1.0;
  const std::span<std::byte> block = member.block();
  transfer.pack_at.advance(count, [&](const Segment& segment, std::size_t offset, std::size_t here) {
    const std::byte* from = segment.in + offset * transfer.unit;
    const std::size_t step = stream ? block.size() / transfer.unit : here;
    for (std::size_t at = 0; factor != 1.0 && at < here; at += step) {
      const std::size_t now = std::min(step, here - at);
      std::byte* scaled = stream ? block.data() : to;
      kernels::scale(dtype, factor, from + at * transfer.unit, scaled, now);
      if (stream) kernels::stream_copy(to + at * transfer.unit, scaled, now * transfer.unit);
    }
    if (factor == 1.0) copy(to, from, here * transfer.unit, stream);
    to += here * transfer.unit;
  });
}

void pack_block(const WindowTransfer& transfer, std::byte* to, bool stream) {
  const Segment& segment = transfer.operation.segments[0];
  const std::size_t from =
      std::min(static_cast<std::size_t>(transfer.packed) * transfer.plan.chunk_elements, segment.count);
  const std::size_t limit = transfer.in_slots() ? transfer.plan.chunk_elements : segment.count;
  copy(to, segment.in + from * transfer.unit, std::min(segment.count - from, limit) * transfer.unit, stream);
}

void collect_blocks(const WindowMember& member, const WindowTransfer& transfer,
                    std::span<const std::byte* const> sources, std::size_t from, std::size_t limit) {
  const Segment& segment = transfer.operation.segments[0];
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::size_t count = transfer.operation.counts[i];
    if (from >= count) continue;
    const std::byte* source = i == member.self() ? segment.in + from * transfer.unit : sources[i];
    std::byte* to = segment.out + (transfer.offsets[i] + from) * transfer.unit;
    copy(to, source, std::min(count - from, limit) * transfer.unit, transfer.large_output && to != source);
  }
}

void unpack_elements(WindowTransfer& transfer, std::size_t count, const std::byte* from) {
  transfer.unpack_at.advance(count, [&](const Segment& segment, std::size_t offset, std::size_t here) {
    copy(segment.out + offset * transfer.unit, from, here * transfer.unit, transfer.streams_to(segment));
    from += here * transfer.unit;
  });
}

namespace {

// --- kBroadcast ---

bool pack_broadcast(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  if (transfer.operation.root != static_cast<int>(member.self())) {  // contributes nothing
    transfer.packed = transfer.plan.chunks;
    return true;
  }
  const std::uint64_t chunk = transfer.first + transfer.packed;
  if (!member.slot_free(chunk)) return false;
  pack_elements(member, transfer, transfer.elements_of(transfer.packed), member.own_slot(chunk),
                stores.streams(transfer, transfer.packed));
  ++transfer.packed;
  member.packed_for_all(chunk);
  return true;
}

bool unpack_broadcast(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  const auto root = static_cast<std::size_t>(transfer.operation.root);
  const std::uint64_t chunk = transfer.first + transfer.unpacked;
  if (!member.packed_by(root, chunk)) return false;
  const std::byte* from = member.slot(root, chunk);
  transfer.unpack_at.advance(transfer.elements_of(transfer.unpacked),
                             [&](const Segment& segment, std::size_t offset, std::size_t count) {
                               const bool in_place = root == member.self() && segment.in == segment.out;
                               std::byte* to = segment.out + offset * transfer.unit;
                               if (!in_place) copy(to, from, count * transfer.unit, transfer.large_output);
                               from += count * transfer.unit;
                             });
  return unpacked(member, stores, transfer);
}

// --- kAllgather ---

bool pack_allgather(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  return pack_into_slot(member, stores, transfer,
                        [&](std::byte* slot, bool stream) { pack_block(transfer, slot, stream); });
}

bool unpack_allgather(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  const std::uint64_t chunk = transfer.first + transfer.unpacked;
  if (!member.all_packed(chunk)) return false;
  const std::size_t limit = transfer.plan.chunk_elements;
  collect_blocks(member, transfer, member.sources(chunk, 0), static_cast<std::size_t>(transfer.unpacked) * limit,
                 limit);
  return unpacked(member, stores, transfer);
}

// --- kScatter and kExchange ---

// Each other member's piece at its place in the slot; the own one is read from the input.
bool pack_pieces(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  return pack_into_slot(member, stores, transfer, [&](std::byte* slot, bool stream) {
    const Operation& operation = transfer.operation;
    const bool scatter = transfer.plan.path == Path::kScatter;
    const std::size_t stride = transfer.plan.chunk_elements * transfer.unit;
    const std::byte* block = operation.segments[0].in;
    for (std::size_t i = 0; i < member.size(); ++i) {
      const std::size_t count = operation.counts[scatter ? i : member.self() * member.size() + i];
      const Range piece = transfer.piece_of(count, transfer.packed);
      const std::byte* from = block + piece.begin * transfer.unit;
      std::byte* to = slot + i * stride;
      if (scatter && operation.prescale != 1.0) {
        kernels::scale(operation.dtype, operation.prescale, from, to, piece.count());
      } else if (i != member.self()) {
        copy(to, from, piece.count() * transfer.unit, stream);
      }
      block += count * transfer.unit;
    }
  });
}

// Where this member's pieces lie in every slot.
std::span<const std::byte*> own_pieces(WindowMember& member, const WindowTransfer& transfer) {
  return member.sources(transfer.first + transfer.unpacked,
                        member.self() * transfer.plan.chunk_elements * transfer.unit);
}

bool unpack_scatter(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  if (!member.all_packed(transfer.first + transfer.unpacked)) return false;
  const Segment& segment = transfer.operation.segments[0];
  const Range piece = transfer.piece_of(transfer.operation.counts[member.self()], transfer.unpacked);
  if (piece.count() > 0) {
    const std::span<const std::byte*> sources = own_pieces(member, transfer);
    if (transfer.operation.prescale == 1.0) {
      sources[member.self()] = segment.in + (transfer.offsets[member.self()] + piece.begin) * transfer.unit;
    }
    kernels::reduce(reduction_of(member, transfer.operation), sources, segment.out + piece.begin * transfer.unit,
                    piece.count(), transfer.streams_to(segment));
  }
  return unpacked(member, stores, transfer);
}

bool unpack_exchange(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  if (!member.all_packed(transfer.first + transfer.unpacked)) return false;
  const auto& counts = transfer.operation.counts;
  const Segment& segment = transfer.operation.segments[0];
  const auto own_row = counts.begin() + static_cast<std::ptrdiff_t>(member.self() * member.size());
  const auto own_at = std::accumulate(own_row, own_row + static_cast<std::ptrdiff_t>(member.self()), std::size_t{0});
  const std::span<const std::byte*> sources = own_pieces(member, transfer);
  std::byte* block = segment.out;
  for (std::size_t i = 0; i < member.size(); ++i) {
    const std::size_t count = counts[i * member.size() + member.self()];
    const Range piece = transfer.piece_of(count, transfer.unpacked);
    const std::byte* from = i == member.self() ? segment.in + (own_at + piece.begin) * transfer.unit : sources[i];
    copy(block + piece.begin * transfer.unit, from, piece.count() * transfer.unit, transfer.large_output);
    block += count * transfer.unit;
  }
  return unpacked(member, stores, transfer);
}

}  // namespace

const PathSteps kBroadcastSteps{.pack = pack_broadcast, .unpack = unpack_broadcast};
const PathSteps kAllgatherSteps{.pack = pack_allgather, .unpack = unpack_allgather};
const PathSteps kScatterSteps{.pack = pack_pieces, .unpack = unpack_scatter};
const PathSteps kExchangeSteps{.pack = pack_pieces, .unpack = unpack_exchange};

const PathSteps& steps_of(Path path) {
  static const PathSteps nothing;  // has no chunk that could take a step
  switch (path) {
    case Path::kNothing:
      break;
    case Path::kTiny:
      return kTinySteps;
    case Path::kOneShot:
      return kOneShotSteps;
    case Path::kTwoPhase:
      return kTwoPhaseSteps;
    case Path::kChain:
      return kChainSteps;
    case Path::kBroadcast:
      return kBroadcastSteps;
    case Path::kAllgather:
      return kAllgatherSteps;
    case Path::kScatter:
      return kScatterSteps;
    case Path::kExchange:
      return kExchangeSteps;
  }
  return nothing;
}

}  // namespace distrun::backend::shm
