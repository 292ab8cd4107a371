// The backend for groups of one rank: it scales and copies. The conformance suite compares other backends with it.
#pragma once

#include <memory>

#include "runtime/backend/factory.h"

namespace distrun::backend {

std::unique_ptr<Factory> make_self_factory();

}  // namespace distrun::backend
