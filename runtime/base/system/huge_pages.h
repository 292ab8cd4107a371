// Memory that is about to be written for the first time: each of its pages costs a fault, which for small pages takes
// several times as long as what is then written there.
#pragma once

#include <cstddef>

namespace distrun {

// From more than this on, malloc maps a block of its own and gives it back when it is freed (glibc's largest
// M_MMAP_THRESHOLD). Smaller ones it may put anywhere and reuse, so that their pages are there already, and what is
// asked for them would stay with whatever comes after them.
constexpr std::size_t kOwnMapping = std::size_t{32} << 20;

// Asks the kernel to back those huge pages that lie whole in a block of more than kOwnMapping bytes by one page each
// (MADV_HUGEPAGE), as it does by itself only where the machine says `always`. What is there already stays as it is;
// where the kernel refuses, nothing happens. Any thread.
void prefer_huge_pages(std::byte* memory, std::size_t bytes);

}  // namespace distrun
