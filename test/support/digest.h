// A digest of bytes (FNV-1a, 64 bits), for tests that compare bytes on the wire with docs/internals/wire.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace distrun {

inline std::uint64_t digest(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const std::byte one : bytes) hash = (hash ^ std::to_integer<std::uint64_t>(one)) * 0x100000001B3ULL;
  return hash;
}

}  // namespace distrun
