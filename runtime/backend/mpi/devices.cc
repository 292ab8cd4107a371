#include "runtime/backend/mpi/devices.h"

#include "runtime/backend/cuda/driver.h"
#include "runtime/backend/cuda/kernel_image.h"

namespace distrun::backend::mpi_plugin {
namespace {

// Each call looks for the driver until it is found.
Result<cuda_parts::Gpus*> gpus() {
  static Mutex mutex;
  static cuda_parts::Gpus* only DISTRUN_GUARDED_BY(mutex) = nullptr;
  const MutexLock lock(mutex);
  if (only != nullptr) return only;
  const char* const image = cuda_parts::kernel_image();
  if (image == nullptr) {
    return Status(Errc::kUnsupported, "this build has no kernels for GPUs. Build it on a machine with nvcc");
  }
  const auto driver = cuda_parts::load_driver(cuda_parts::system_loader());
  if (!driver.ok()) return driver.status();
  only = new cuda_parts::Gpus(*driver, image);
  return only;
}

}  // namespace

Status gpus_usable() { return gpus().status(); }

Result<cuda_parts::Gpu*> find_gpu(std::int32_t index) {
  auto all = gpus();
  if (!all.ok()) return all.status();
  return (*all)->gpu(index);
}

}  // namespace distrun::backend::mpi_plugin
