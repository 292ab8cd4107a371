#include "runtime/net/identity/mac_key.h"

#include <sodium.h>

namespace distrun::net {
namespace {

const unsigned char* raw(const void* data) { return static_cast<const unsigned char*>(data); }

}  // namespace

MacKey::MacKey(const JobKey& key, std::string_view purpose) {
  crypto_generichash(bytes_.data(), bytes_.size(), raw(purpose.data()), purpose.size(), key.data(), JobKey::kBytes);
}

MacKey::~MacKey() { sodium_memzero(bytes_.data(), bytes_.size()); }

Mac MacKey::mac(std::span<const std::byte> data) const {
  Mac mac{};
  crypto_generichash(reinterpret_cast<unsigned char*>(mac.data()), mac.size(), raw(data.data()), data.size(),
                     bytes_.data(), bytes_.size());
  return mac;
}

bool MacKey::verify(std::span<const std::byte> data, std::span<const std::byte, kMacBytes> mac) const {
  return sodium_memcmp(this->mac(data).data(), mac.data(), kMacBytes) == 0;
}

}  // namespace distrun::net
