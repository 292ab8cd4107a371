// Huge pages for memory that is about to be written for the first time. The first write to each page costs a page
// fault. With small pages the faults take several times as long as the writes.
#pragma once

#include <cstddef>

namespace distrun {

// malloc maps larger blocks separately and unmaps them when they are freed (glibc's largest M_MMAP_THRESHOLD). Smaller
// blocks may share pages with others and reuse memory. Their pages are often present already, and advice about them
// would stay in effect for the next owner of the memory.
constexpr std::size_t kOwnMapping = std::size_t{32} << 20;

// Asks the kernel to use huge pages (MADV_HUGEPAGE) for the part of the block that whole huge pages cover. Does nothing
// for blocks of kOwnMapping bytes or less. Without this, the kernel does so only if the system setting is `always`.
// Pages that exist already stay as they are. If the kernel refuses, nothing happens. Safe from any thread.
void prefer_huge_pages(std::byte* memory, std::size_t bytes);

}  // namespace distrun
