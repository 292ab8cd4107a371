// Reads which advice (madvise) the kernel has for memory of this process.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "runtime/base/status.h"

namespace distrun::test {

// Whether this kernel has transparent huge pages.
inline bool has_huge_pages() { return ::access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) == 0; }

// Memory in its own mapping, which no code has touched and for which no advice was given.
class Fresh {
 public:
  explicit Fresh(std::size_t bytes)
      : bytes_(bytes), all_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    DISTRUN_CHECK(all_ != MAP_FAILED, "memory for a test");
  }
  ~Fresh() { ::munmap(all_, bytes_); }
  Fresh(const Fresh&) = delete;
  Fresh& operator=(const Fresh&) = delete;

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(all_); }

 private:
  std::size_t bytes_;
  void* all_;
};

// Whether the mapping that contains `address` is marked for huge pages ("hg" in /proc/self/smaps).
inline bool wants_huge_pages(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = begin <= wanted && wanted < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return (line + " ").find(" hg ") != std::string::npos;
    }
  }
  return false;
}

}  // namespace distrun::test
