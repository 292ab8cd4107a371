#include "runtime/backend/plugin/group_secret.h"

#include <sodium.h>

#include <string_view>

namespace distrun::backend::plugin {

GroupSecret::GroupSecret(const net::JobKey& key, const std::string& name, const std::string& group) {
  // Lengths are part of the hash's input by the zero bytes: neither name has one.
  const std::string purpose = std::string("distrun plug-in") + '\0' + name + '\0' + group;
  crypto_generichash(bytes_.data(), bytes_.size(), reinterpret_cast<const unsigned char*>(purpose.data()),
                     purpose.size(), key.data(), net::JobKey::kBytes);
}

GroupSecret::~GroupSecret() { sodium_memzero(bytes_.data(), bytes_.size()); }

Mac GroupSecret::mac(std::span<const unsigned char> data) const {
  Mac mac{};
  crypto_generichash(mac.data(), mac.size(), data.data(), data.size(), bytes_.data(), bytes_.size());
  return mac;
}

}  // namespace distrun::backend::plugin
