// A group of one: scales and copies. Also the yardstick of the conformance suite.
#pragma once

#include <memory>

#include "runtime/backend/factory.h"

namespace distrun::backend {

std::unique_ptr<Factory> make_self_factory();

}  // namespace distrun::backend
