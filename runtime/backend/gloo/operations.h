// The operations of the table as calls of Gloo. Each call blocks until this member's part is done. Gloo's failures are
// exceptions. After one, nothing touches the operation's memory any more.
#pragma once

#include <gloo/context.h>

#include <cstdint>
#include <memory>

#include "runtime/backend/plugin/plugin_side.h"

namespace distrun::backend::gloo_plugin {

inline constexpr std::uint32_t kKinds = 1U << DISTRUN_BACKEND_ALLREDUCE | 1U << DISTRUN_BACKEND_ALLGATHER |
                                        1U << DISTRUN_BACKEND_BROADCAST | 1U << DISTRUN_BACKEND_BARRIER |
                                        1U << DISTRUN_BACKEND_ALLTOALL | 1U << DISTRUN_BACKEND_REDUCESCATTER;

// All-reduces of more bytes use a ring. Others use halving and doubling, which takes fewer steps.
inline constexpr std::size_t kRingBytes = 64 << 10;

void run(const std::shared_ptr<::gloo::Context>& context, const distrun_backend_operation& operation);

}  // namespace distrun::backend::gloo_plugin
