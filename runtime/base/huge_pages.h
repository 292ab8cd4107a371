// Memory that is about to be written for the first time: each of its pages costs a fault, which for small pages takes
// several times as long as what is then written there.
#pragma once

#include <cstddef>

namespace distrun {

// Asks the kernel to back those huge pages that lie whole in the memory by one page each (MADV_HUGEPAGE), as it does by
// itself only where the machine says `always`. No more memory is used than its owner is about to write. What is there
// already stays as it is; where the kernel refuses, nothing happens. Any thread.
void prefer_huge_pages(std::byte* memory, std::size_t bytes);

}  // namespace distrun
