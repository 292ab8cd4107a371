// Copies of tensor elements, through the caches or past them. Pure functions, callable from any thread; pointers need
// no alignment; nothing overlaps.
#pragma once

#include <cstddef>

namespace distrun::backend::kernels {

inline constexpr std::size_t kLine = 64;  // of the caches, in bytes

// Through the caches: memcpy to whole cache lines. The C library copies what is larger than a few KiB by `rep movsb`,
// which takes up to 1.6 times as long on some AMD processors where the destination does not begin a line, and large
// blocks of malloc() begin 16 bytes behind one. Where that is within its page a few bytes behind the source's place in
// its own, which is how such a block and a slot of a window lie, it takes 12 times as long there: no memcpy then.
void copy(std::byte* to, const std::byte* from, std::size_t bytes);

// Past the caches: the bytes go to memory instead of staying, modified, in this core's cache. A reader on another core
// then fetches them from memory, which on many machines is several times faster than asking this core for them.
// Ordered before every later store of this thread. A plain copy where the processor has no such stores.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace distrun::backend::kernels
