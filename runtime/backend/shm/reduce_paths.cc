// The paths of all-reduces, from the smallest to the largest: kTiny, kOneShot, kTwoPhase, kChain.
#include <array>

#include "runtime/backend/shm/path_parts.h"

namespace distrun::backend::shm {
namespace {

// --- kTiny, which also serves barriers and small all-gathers ---

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

// The own contribution is read where it came from, which is still in the cache, unless it was rounded on its way.
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

// Nobody else reads the own part, and reduce_part() takes it from the input.
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

// The own part of all slots into the output, and from there into the own slot for the others. Nobody else touches this
// part of the own slot before it is published.
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
      transfer.unpack_at.skip(part.count());  // there since reduce_part()
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

// The first member starts a chunk when its slot is free, each other one when the one before it has added its own.
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

}  // namespace

const PathSteps kTinySteps{.pack = pack_tiny, .unpack = unpack_tiny};
const PathSteps kOneShotSteps{.pack = pack_one_shot, .unpack = unpack_one_shot};
const PathSteps kTwoPhaseSteps{.pack = pack_two_phase, .reduce = reduce_two_phase, .unpack = unpack_two_phase};
const PathSteps kChainSteps{.pack = pack_chain, .unpack = unpack_chain};

}  // namespace distrun::backend::shm
