// Offers tcp for every group, with CPU tensors. `self` has a higher score for groups of one rank.
#pragma once

#include <memory>

#include "runtime/backend/factory.h"

namespace distrun::backend {

std::unique_ptr<Factory> make_tcp_factory();

}  // namespace distrun::backend
