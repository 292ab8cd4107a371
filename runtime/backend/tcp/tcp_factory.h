// Offers the ring for every group of CPU tensors with two or more ranks.
#pragma once

#include <memory>

#include "runtime/backend/factory.h"

namespace distrun::backend {

std::unique_ptr<Factory> make_tcp_factory();

}  // namespace distrun::backend
