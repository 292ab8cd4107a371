// Copies tensor elements through the caches or past them. Pure and thread-safe. Pointers need no alignment. Source and
// destination may not overlap.
#pragma once

#include <cstddef>

namespace distrun::backend::kernels {

inline constexpr std::size_t kLine = 64;  // bytes of a cache line

// Copies through the caches, with memcpy to whole cache lines. Above a few KiB, the C library uses `rep movsb`. On some
// AMD processors this takes up to 1.6 times as long if the destination is not at the start of a line, and large blocks
// of malloc() begin 16 bytes after one. It takes 12 times as long if the destination's offset in its page is a few
// bytes greater than the source's offset. Such a block and a slot of a window are placed like that. In this case copy()
// avoids memcpy.
void copy(std::byte* to, const std::byte* from, std::size_t bytes);

// Copies past the caches: the bytes go to memory and do not stay modified in this core's cache. A reader on another
// core then fetches them from memory. On many machines this is several times faster than fetching them from this core.
// The copy is ordered before every later store of this thread. On processors without such stores it is a plain copy.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace distrun::backend::kernels
