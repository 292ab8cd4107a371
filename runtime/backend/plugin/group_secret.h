// A group's own secret, derived from the job's key. Plug-ins get MACs that are made with it, never a key.
#pragma once

#include <array>
#include <span>
#include <string>

#include "runtime/net/world.h"

namespace distrun::backend::plugin {

inline constexpr std::size_t kMacBytes = 32;
using Mac = std::array<unsigned char, kMacBytes>;

class GroupSecret {
 public:
  // `name` is the plug-in's and `group` the group's id: a MAC of one says nothing to another.
  GroupSecret(const net::JobKey& key, const std::string& name, const std::string& group);
  ~GroupSecret();
  GroupSecret(const GroupSecret&) = delete;
  GroupSecret& operator=(const GroupSecret&) = delete;

  [[nodiscard]] Mac mac(std::span<const unsigned char> data) const;  // any thread

 private:
  std::array<unsigned char, 32> bytes_{};
};

}  // namespace distrun::backend::plugin
