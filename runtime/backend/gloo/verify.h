// Proof, before the first tensor, that each pair of a Gloo context connects two members of the job: Gloo takes whoever
// comes first to a port.
#pragma once

#include <gloo/context.h>

#include <chrono>
#include <memory>

#include "runtime/backend/plugin/guest.h"

namespace distrun::backend::gloo_plugin {

// Collective over the context. Gloo's failures are exceptions.
Status verify_pairs(const std::shared_ptr<::gloo::Context>& context, const plugin::Host& host,
                    std::chrono::milliseconds timeout);

}  // namespace distrun::backend::gloo_plugin
