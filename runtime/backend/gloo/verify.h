// Proves, before the first tensor, that each pair of a Gloo context connects two members of the job. This is necessary
// because Gloo accepts the first process that connects to a port.
#pragma once

#include <gloo/context.h>

#include <atomic>
#include <memory>

#include "runtime/backend/plugin/plugin_side.h"

namespace distrun::backend::gloo_plugin {

// Collective over the context. Gloo's failures are exceptions. `busy_with` is the member for which this one waits, or
// which an error concerns.
Status verify_pairs(const std::shared_ptr<::gloo::Context>& context, const plugin::Host& host,
                    std::atomic<int>& busy_with);

}  // namespace distrun::backend::gloo_plugin
