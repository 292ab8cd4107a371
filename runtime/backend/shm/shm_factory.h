// Offers shm where all members of the group share this host's memory.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/backend/factory.h"

namespace distrun::backend {

// `large_output`: outputs from so many bytes on, of which little is left in the caches when somebody reads them, are
// written past the caches where that saves reading what is overwritten.
std::unique_ptr<Factory> make_shm_factory(std::size_t large_output = 16 << 20);

}  // namespace distrun::backend
