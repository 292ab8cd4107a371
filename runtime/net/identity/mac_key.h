// Proofs that need no session: a key for one purpose, derived from the job's, and MACs made with it (BLAKE2b,
// libsodium's crypto_generichash). Any thread.
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
  // A MAC for one purpose says nothing for another. What a purpose is made of is separated by zero bytes.
  MacKey(const JobKey& key, std::string_view purpose);
  ~MacKey();
  MacKey(const MacKey&) = delete;
  MacKey& operator=(const MacKey&) = delete;

  [[nodiscard]] Mac mac(std::span<const std::byte> data) const;
  // In a time that does not tell how much of it is right.
  [[nodiscard]] bool verify(std::span<const std::byte> data, std::span<const std::byte, kMacBytes> mac) const;

 private:
  std::array<unsigned char, 32> bytes_{};
};

}  // namespace distrun::net
