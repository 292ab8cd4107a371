// The backends that every build has. In a folder of its own because it is the one place that knows them all: the
// interface above it (factory.h) knows none.
#pragma once

#include <memory>
#include <vector>

#include "runtime/backend/factory.h"

namespace distrun::backend {

// Order is no meaning, the score is.
std::vector<std::unique_ptr<Factory>> builtin_factories();

}  // namespace distrun::backend
