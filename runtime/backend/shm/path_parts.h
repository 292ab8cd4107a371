// What several paths have in common.
#pragma once

#include <cstddef>

#include "runtime/backend/kernels/copy.h"
#include "runtime/backend/kernels/kernels.h"
#include "runtime/backend/shm/paths.h"

namespace distrun::backend::shm {

inline kernels::Reduction reduction_of(const WindowMember& member, const Operation& operation) {
  return {.dtype = operation.dtype,
          .op = operation.reduce,
          .finish = kernels::finish_of(operation.reduce, operation.postscale, member.size())};
}

inline void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from) kernels::copy(to, from, bytes);
}

inline void copy(std::byte* to, const std::byte* from, std::size_t bytes, bool stream) {
  if (stream) {
    kernels::stream_copy(to, from, bytes);
  } else {
    copy(to, from, bytes);
  }
}

// The next `count` elements of the input, scaled.
void pack_elements(WindowMember& member, WindowTransfer& transfer, std::size_t count, std::byte* to, bool stream);

// The part of the own block that belongs to the chunk; blocks shorter than the longest end earlier.
void pack_block(const WindowTransfer& transfer, std::byte* to, bool stream);

// Elements [from, from + limit) of every member's block, from `sources` into the output. The own block comes from the
// input; it may be there already.
void collect_blocks(const WindowMember& member, const WindowTransfer& transfer,
                    std::span<const std::byte* const> sources, std::size_t from, std::size_t limit);

// The next `count` elements of the output, which lie at `from` one after the other.
void unpack_elements(WindowTransfer& transfer, std::size_t count, const std::byte* from);

// Calls work(slot, stream) when the own slot is free.
template <class Work>
bool pack_into_slot(WindowMember& member, const StorePolicy& stores, WindowTransfer& transfer, Work&& work) {
  const std::uint64_t chunk = transfer.first + transfer.packed;
  if (!member.slot_free(chunk)) return false;
  work(member.own_slot(chunk), stores.streams(transfer, transfer.packed));
  ++transfer.packed;
  member.packed(chunk);
  return true;
}

// After the work: this member reads the chunk no more.
inline bool unpacked(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer) {
  stores.finished(transfer, transfer.unpacked);
  member.done(transfer.first + transfer.unpacked);
  ++transfer.unpacked;
  return true;
}

}  // namespace distrun::backend::shm
