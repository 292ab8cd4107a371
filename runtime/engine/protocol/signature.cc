#include "runtime/engine/protocol/signature.h"

#include <algorithm>
#include <limits>

namespace distrun::engine {

bool fits_in_memory(const Shape& shape, DType dtype) {
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t dimension) { return dimension < 0; })) return false;
  std::int64_t room = std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(size_of(dtype));
  for (const std::int64_t dimension : shape) room /= std::max<std::int64_t>(dimension, 1);
  return room > 0;
}

}  // namespace distrun::engine
