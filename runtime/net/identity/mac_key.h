// Authenticates data without a session. Derives a key for one purpose from the job's key, and makes MACs with it
// (BLAKE2b, libsodium's crypto_generichash). Safe from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "runtime/net/identity/world.h"

namespace distrun::net {

inline constexpr std::size_t kMacBytes = 32;
using Mac = std::array<std::byte, kMacBytes>;

class MacKey {
 public:
  // A MAC for one purpose is not valid for another. Separate the parts of `purpose` by zero bytes.
  MacKey(const JobKey& key, std::string_view purpose);
  ~MacKey();
  MacKey(const MacKey&) = delete;
  MacKey& operator=(const MacKey&) = delete;

  [[nodiscard]] Mac mac(std::span<const std::byte> data) const;
  // Runs in constant time, so the time does not tell how many bytes are right.
  [[nodiscard]] bool verify(std::span<const std::byte> data, std::span<const std::byte, kMacBytes> mac) const;

 private:
  std::array<unsigned char, 32> bytes_{};
};

}  // namespace distrun::net
