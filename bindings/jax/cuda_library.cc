// In a separate file, because tests replace it with a fake driver.
#include <dlfcn.h>

#include "bindings/jax/cuda.h"

namespace distrun::jax {
namespace {

Cuda find() {
  Cuda found;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // stays loaded
  if (library == nullptr) {
    const char* const why = dlerror();
    found.missing =
        std::string("the CUDA driver was not found: ") + (why == nullptr ? "the system gives no reason" : why);
    return found;
  }
#define X(member, symbol, arguments)                                          \
  found.member = reinterpret_cast<int(*) arguments>(dlsym(library, #symbol)); \
  if (found.member == nullptr) found.missing = "libcuda.so.1 has no " #symbol;
  DISTRUN_JAX_CUDA_FUNCTIONS(X)
#undef X
  return found;
}

}  // namespace

// Never destroyed: operations may be in flight when the process ends.
const Cuda& cuda() {
  static const auto* const the_one = new Cuda(find());
  return *the_one;
}

}  // namespace distrun::jax
