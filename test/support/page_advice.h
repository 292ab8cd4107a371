// What the kernel has been told about memory of this process.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace distrun::test {

// Whether the mapping that `address` lies in is marked for huge pages ("hg" in /proc/self/smaps).
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
