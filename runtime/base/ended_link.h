// Describes a peer whose connection has ended.
#pragma once

#include <string>

#include "runtime/base/link_end.h"

namespace distrun {

// Text for the user when the MTU of a path is smaller than its two ends assume.
inline constexpr const char* kLargeMessagesLost = "small messages pass, large ones do not: check the MTU";

struct EndedLink {
  int peer = -1;  // a member index on a control plane, a world rank in a backend
  LinkEnd end = LinkEnd::kUnknown;
  std::string how{};  // for instance "Connection timed out"; empty if `end` already says everything
};

}  // namespace distrun
