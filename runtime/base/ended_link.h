// A peer whose connection has ended.
#pragma once

#include <string>

#include "runtime/base/link_end.h"

namespace distrun {

// What people read of a path whose MTU is smaller than its ends believe.
inline constexpr const char* kLargeMessagesLost = "small messages pass, large ones do not: check the MTU";

struct EndedLink {
  int peer = -1;  // its member index on a control plane, its world rank in a backend
  LinkEnd end = LinkEnd::kUnknown;
  std::string how{};  // "Connection timed out"; empty: `end` says it all
};

}  // namespace distrun
