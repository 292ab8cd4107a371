// Offers shm where all members of the group share this host's memory.
#pragma once

#include <memory>

#include "runtime/backend/factory.h"

namespace distrun::backend {

std::unique_ptr<Factory> make_shm_factory();

}  // namespace distrun::backend
