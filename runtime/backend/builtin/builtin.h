// The backends of every build. They have their own folder, because only this file knows all of them. The interface
// (factory.h) knows none.
#pragma once

#include <memory>
#include <vector>

#include "runtime/backend/factory.h"

namespace distrun::backend {

// The order has no meaning: scores decide.
std::vector<std::unique_ptr<Factory>> builtin_factories();

}  // namespace distrun::backend
