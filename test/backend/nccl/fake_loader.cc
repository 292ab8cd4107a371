// Replaces system_loader.cc: the real plug-in then runs over the fake.
#include <cstring>
#include <string>

#include "runtime/backend/cuda/kernel_image.h"
#include "runtime/backend/nccl/libraries.h"
#include "test/backend/nccl/fake_gpus.h"

namespace distrun::backend::cuda_parts {

const char* kernel_image() { return "no kernels"; }

namespace {

void* find_symbol(const std::string& wanted) {
  static const nccl_plugin::Libraries fake = test::fake_gpus::libraries();
#define DISTRUN_CUDA_FUNCTION(member, symbol, arguments) \
  if (wanted == #symbol) return reinterpret_cast<void*>(fake.cuda.member);
  DISTRUN_CUDA_FUNCTIONS(DISTRUN_CUDA_FUNCTION)
#undef DISTRUN_CUDA_FUNCTION
#define DISTRUN_NCCL_FUNCTION(result, member, symbol, arguments) \
  if (wanted == #symbol) return reinterpret_cast<void*>(fake.nccl.member);
  DISTRUN_NCCL_FUNCTIONS(DISTRUN_NCCL_FUNCTION)
#undef DISTRUN_NCCL_FUNCTION
  return nullptr;
}

}  // namespace

Loader system_loader() {
  test::fake_gpus::lag(2);
  return {.exists = [](const char*) { return true; },
          .open = [](const std::string&, bool) { return reinterpret_cast<void*>(&test::fake_gpus::lag); },
          .find = [](void*, const char* symbol) { return find_symbol(symbol); },
          .why = [] { return std::string(); },
          .plugin_file = {}};
}

}  // namespace distrun::backend::cuda_parts
