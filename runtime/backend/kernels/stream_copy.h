// Copies past the caches: the bytes go to memory instead of staying, modified, in this core's cache. A reader on
// another core then fetches them from memory, which on many machines is several times faster than asking this core for
// them.
#pragma once

#include <cstddef>

namespace distrun::backend::kernels {

// Ordered before every later store of this thread. A plain copy where the processor has no such stores.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace distrun::backend::kernels
