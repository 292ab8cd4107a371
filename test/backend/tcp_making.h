// Helpers that the tests of the backend `tcp` share.
#pragma once

#include <memory>

#include "runtime/backend/tcp/tcp_factory.h"

namespace distrun::test {

inline constexpr double kTcpTimeLimit = 60;  // seconds; only a hang reaches it

inline Result<std::unique_ptr<backend::Backend>> make_tcp(const backend::GroupSpec& group,
                                                          const backend::Services& services, TimePoint deadline) {
  return backend::make_tcp_factory()->create(group, services, deadline);
}

}  // namespace distrun::test
