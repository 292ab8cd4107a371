// Offers shm if all members of the group share this host's memory.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/backend/factory.h"

namespace distrun::backend {

// `large_output`: bytes. An output of at least this size is mostly evicted from the caches before it is read. It is
// written past the caches, if that avoids reading the lines that are overwritten.
std::unique_ptr<Factory> make_shm_factory(std::size_t large_output = 16 << 20);

}  // namespace distrun::backend
