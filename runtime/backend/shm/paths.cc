#include "runtime/backend/shm/paths.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "runtime/backend/kernels/copy.h"
#include "runtime/backend/kernels/kernels.h"

namespace distrun::backend::shm {
namespace {

kernels::Reduction reduction_of(const WindowMember& member, const Operation& operation) {
  return {.dtype = operation.dtype,
          .op = operation.reduce,
          .finish = kernels::finish_of(operation.reduce, operation.postscale, member.size())};
}

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from) kernels::copy(to, from, bytes);
}

void copy(std::byte* to, const std::byte* from, std::size_t bytes, bool stream) {
  if (stream) {
    kernels::stream_copy(to, from, bytes);
  } else {
    copy(to, from, bytes);
  }
}

// Packs the next `count` elements of the input, scaled.
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

// Packs this chunk's part of this member's block. Blocks that are shorter than the longest one end earlier.
void pack_block(const WindowTransfer& transfer, std::byte* to, bool stream) {
  const Segment& segment = transfer.operation.segments[0];
  const std::size_t from =
      std::min(static_cast<std::size_t>(transfer.packed) * transfer.plan.chunk_elements, segment.count);
  const std::size_t limit = transfer.in_slots() ? transfer.plan.chunk_elements : segment.count;
  copy(to, segment.in + from * transfer.unit, std::min(segment.count - from, limit) * transfer.unit, stream);
}

// Copies elements [from, from + limit) of every member's block from `sources` to the output. This member's own block
// comes from the input. It may already be in place.
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

// Copies the next `count` elements of the output. At `from` they are contiguous.
void unpack_elements(WindowTransfer& transfer, std::size_t count, const std::byte* from) {
  transfer.unpack_at.advance(count, [&](const Segment& segment, std::size_t offset, std::size_t here) {
    copy(segment.out + offset * transfer.unit, from, here * transfer.unit, transfer.streams_to(segment));
    from += here * transfer.unit;
  });
}

// Calls work(slot, stream) if this member's slot is free.
template <class Work>
bool pack_into_slot(WindowMember& member, const StorePolicy& stores, WindowTransfer& transfer, Work&& work) {
  const std::uint64_t chunk = transfer.first + transfer.packed;
  if (!member.slot_free(chunk)) return false;
  work(member.own_slot(chunk), stores.streams(transfer, transfer.packed));
  ++transfer.packed;
  member.packed(chunk);
  return true;
}

// Call this after the last read of the chunk: this member no longer needs it.
bool unpacked(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  stores.finished(transfer, transfer.unpacked);
  member.done(transfer.first + transfer.unpacked);
  ++transfer.unpacked;
  return true;
}

// --- kTiny, also for barriers and small all-gathers ---

bool pack_tiny(WindowMember& member, StorePolicy&, WindowTransfer& transfer) {
  if (!member.tiny_free(transfer.first)) return false;
  std::byte* payload = member.tiny_payload(member.self(), transfer.first);
  if (transfer.operation.kind == OpKind::kAllgather) {
    pack_block(transfer, payload, false);
  } else {
    pack_elements(member, transfer, transfer.plan.elements, payload, false);
  }
  transfer.packed = 1;
  member.publish_tiny(transfer.first);
  return true;
}

bool unpack_tiny(WindowMember& member, StorePolicy&, WindowTransfer& transfer) {
  if (transfer.packed == 0 || !member.tiny_arrived(transfer.first)) return false;
  if (transfer.operation.kind == OpKind::kAllgather) {
    collect_blocks(member, transfer, member.tiny_sources(transfer.first, 0), 0, transfer.plan.elements);
  } else {
    const kernels::Reduction what = reduction_of(member, transfer.operation);
    std::size_t at = 0;
    transfer.unpack_at.advance(
        transfer.plan.elements, [&](const Segment& segment, std::size_t offset, std::size_t count) {
          kernels::reduce(what, member.tiny_sources(transfer.first, at), segment.out + offset * transfer.unit, count);
          at += count * transfer.unit;
        });
  }
  transfer.unpacked = 1;
  member.read_tiny(transfer.first);
  return true;
}

// --- kOneShot ---

bool pack_one_shot(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  return pack_into_slot(member, stores, transfer, [&](std::byte* slot, bool stream) {
    const std::size_t elements = transfer.elements_of(transfer.packed);
    stores.timed(transfer, transfer.packed, elements * transfer.unit,
                 [&] { pack_elements(member, transfer, elements, slot, stream); });
  });
}

// Reads this member's contribution from the input, which is still in the cache. With a prescale it reads the slot,
// because the scaled value was rounded there.
void reduce_chunk(WindowMember& member, WindowTransfer& transfer) {
  const kernels::Reduction what = reduction_of(member, transfer.operation);
  const std::uint64_t chunk = transfer.first + transfer.unpacked;
  std::size_t at = 0;
  transfer.unpack_at.advance(transfer.elements_of(transfer.unpacked),
                             [&](const Segment& segment, std::size_t offset, std::size_t count) {
                               const std::span<const std::byte*> sources = member.sources(chunk, at);
                               if (transfer.operation.prescale == 1.0)
                                 sources[member.self()] = segment.in + offset * transfer.unit;
                               std::byte* out = segment.out + offset * transfer.unit;
                               kernels::reduce(what, sources, out, count, transfer.streams_to(segment));
                               at += count * transfer.unit;
                             });
}

bool unpack_one_shot(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  if (!member.all_packed(transfer.first + transfer.unpacked)) return false;
  stores.timed(transfer, transfer.unpacked, 0, [&] { reduce_chunk(member, transfer); });
  return unpacked(member, stores, transfer);
}

// --- kTwoPhase ---

// Without a prescale, leaves out this member's own part: no other member reads it, and reduce_part() takes it from the
// input.
void pack_but_own_part(WindowMember& member, WindowTransfer& transfer, std::byte* slot, bool stream) {
  const std::size_t elements = transfer.elements_of(transfer.packed);
  if (transfer.operation.prescale != 1.0) return pack_elements(member, transfer, elements, slot, stream);
  const Range own = part_of(elements, transfer.unit, member.self(), member.size());
  pack_elements(member, transfer, own.begin, slot, stream);
  transfer.pack_at.skip(own.count());
  pack_elements(member, transfer, elements - own.end, slot + own.end * transfer.unit, stream);
}

bool pack_two_phase(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  return pack_into_slot(member, stores, transfer, [&](std::byte* slot, bool stream) {
    stores.timed(transfer, transfer.packed, transfer.elements_of(transfer.packed) * transfer.unit,
                 [&] { pack_but_own_part(member, transfer, slot, stream); });
  });
}

// Reduces this member's part of all slots into the output, and copies the result into its own slot for the others. No
// other member touches this part of the slot before it is published.
void reduce_part(WindowMember& member, WindowTransfer& transfer, bool stream) {
  const std::uint64_t chunk = transfer.first + transfer.reduced;
  const std::size_t elements = transfer.elements_of(transfer.reduced);
  const Range own = part_of(elements, transfer.unit, member.self(), member.size());
  const kernels::Reduction what = reduction_of(member, transfer.operation);
  std::size_t at = own.begin * transfer.unit;
  transfer.reduce_at.skip(own.begin);
  transfer.reduce_at.advance(own.count(), [&](const Segment& segment, std::size_t offset, std::size_t count) {
    const std::span<const std::byte*> sources = member.sources(chunk, at);
    if (transfer.operation.prescale == 1.0) sources[member.self()] = segment.in + offset * transfer.unit;
    std::byte* result = segment.out + offset * transfer.unit;
    kernels::reduce(what, sources, result, count);
    copy(member.own_slot(chunk) + at, result, count * transfer.unit, stream);
    at += count * transfer.unit;
  });
  transfer.reduce_at.skip(elements - own.end);
}

bool reduce_two_phase(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  const std::uint64_t chunk = transfer.first + transfer.reduced;
  if (!member.all_packed(chunk)) return false;
  stores.timed(transfer, transfer.reduced, 0,
               [&] { reduce_part(member, transfer, stores.streams(transfer, transfer.reduced)); });
  ++transfer.reduced;
  member.reduced(chunk);
  return true;
}

void collect_parts(const WindowMember& member, WindowTransfer& transfer) {
  const std::uint64_t chunk = transfer.first + transfer.unpacked;
  const std::size_t elements = transfer.elements_of(transfer.unpacked);
  for (std::size_t i = 0; i < member.size(); ++i) {
    const Range part = part_of(elements, transfer.unit, i, member.size());
    if (i == member.self()) {
      transfer.unpack_at.skip(part.count());  // in place since reduce_part()
    } else {
      unpack_elements(transfer, part.count(), member.slot(i, chunk) + part.begin * transfer.unit);
    }
  }
}

bool unpack_two_phase(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  if (!member.all_reduced(transfer.first + transfer.unpacked)) return false;
  stores.timed(transfer, transfer.unpacked, 0, [&] { collect_parts(member, transfer); });
  return unpacked(member, stores, transfer);
}

// --- kChain ---

void add_to_chain(const WindowMember& member, WindowTransfer& transfer, std::byte* slot) {
  kernels::Reduction what = reduction_of(member, transfer.operation);
  if (!member.is_last()) what.finish = {};
  transfer.pack_at.advance(transfer.elements_of(transfer.packed),
                           [&](const Segment& segment, std::size_t offset, std::size_t count) {
                             const std::byte* own = segment.in + offset * transfer.unit;
                             const std::array<const std::byte*, 2> sources = {slot, own};
                             if (member.self() == 0) {
                               copy(slot, own, count * transfer.unit);
                             } else {
                               kernels::reduce(what, sources, slot, count);
                             }
                             slot += count * transfer.unit;
                           });
}

// The first member starts a chunk when its slot is free. Each other member waits until the member before it has added
// its input.
bool pack_chain(WindowMember& member, StorePolicy&, WindowTransfer& transfer) {
  const std::uint64_t chunk = transfer.first + transfer.packed;
  const bool first = member.self() == 0;
  if (first ? !member.slot_free(chunk) : !member.packed_by(member.self() - 1, chunk)) return false;
  add_to_chain(member, transfer, member.slot(0, chunk));
  ++transfer.packed;
  if (member.is_last()) {
    member.packed_for_all(chunk);
  } else {
    member.packed_for_next(chunk);
  }
  return true;
}

bool unpack_chain(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  const std::uint64_t chunk = transfer.first + transfer.unpacked;
  if (!member.packed_by(member.size() - 1, chunk)) return false;
  unpack_elements(transfer, transfer.elements_of(transfer.unpacked), member.slot(0, chunk));
  return unpacked(member, stores, transfer);
}

// --- kBroadcast ---

bool pack_broadcast(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  if (transfer.operation.root != static_cast<int>(member.self())) {  // only the root contributes
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

// Packs each other member's piece at its place in the slot. This member's own piece is read from the input, unless it
// is scaled.
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

// The addresses of this member's pieces in all slots.
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

// In the order of Path.
constexpr std::array<PathSteps, 9> kSteps = {{
    {},  // kNothing has no chunks, so no steps
    {.pack = pack_tiny, .unpack = unpack_tiny},
    {.pack = pack_one_shot, .unpack = unpack_one_shot},
    {.pack = pack_two_phase, .reduce = reduce_two_phase, .unpack = unpack_two_phase},
    {.pack = pack_chain, .unpack = unpack_chain},
    {.pack = pack_broadcast, .unpack = unpack_broadcast},
    {.pack = pack_allgather, .unpack = unpack_allgather},
    {.pack = pack_pieces, .unpack = unpack_scatter},
    {.pack = pack_pieces, .unpack = unpack_exchange},
}};
static_assert(static_cast<std::size_t>(Path::kExchange) + 1 == kSteps.size());

}  // namespace

const PathSteps& steps_of(Path path) { return kSteps[static_cast<std::size_t>(path)]; }

}  // namespace distrun::backend::shm
