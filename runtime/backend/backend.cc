#include "runtime/backend/backend.h"

#include "runtime/backend/kernels/kernels.h"

namespace distrun::backend {

void scale(DType dtype, double factor, const std::byte* in, std::byte* out, std::size_t count) {
  kernels::scale(dtype, factor, in, out, count);
}

}  // namespace distrun::backend
