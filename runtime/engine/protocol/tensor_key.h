// A tensor's identity while it is in flight: its name within its process set. It refers to a name that its owner keeps
// alive.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace distrun::engine {

// The name of every join, so that all members of a set refer to the same one.
inline constexpr std::string_view kJoinName = "distrun.join";

struct TensorKey {
  int set = 0;
  std::string_view name;
  friend bool operator==(const TensorKey&, const TensorKey&) = default;
};

struct TensorKeyHash {
  std::size_t operator()(const TensorKey& key) const {
    constexpr std::size_t kSpread = 0x9E3779B97F4A7C15;  // so that sets do not share buckets
    return std::hash<std::string_view>{}(key.name) ^ static_cast<std::size_t>(key.set) * kSpread;
  }
};

}  // namespace distrun::engine
