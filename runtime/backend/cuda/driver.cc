#include "runtime/backend/cuda/driver.h"

namespace distrun::backend::cuda_parts {
namespace {

constexpr const char* kDriver = "libcuda.so.1";

// One of these exists if the kernel part of the driver is installed: bare metal and containers, WSL, Jetson.
constexpr const char* kDeviceNodes[] = {"/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu"};

Status check_gpu(const Loader& loader) {
  for (const char* node : kDeviceNodes) {
    if (loader.exists(node)) return {};
  }
  return {
      Errc::kUnsupported,
      "no NVIDIA GPU: /dev/nvidiactl does not exist. Install the NVIDIA driver, or start the container with its GPUs "
      "(docker: --gpus all)"};
}

}  // namespace

Result<CudaApi> load_driver(const Loader& loader) {
  DISTRUN_RETURN_IF_ERROR(check_gpu(loader));
  void* library = loader.open(kDriver, true);
  if (library == nullptr) library = loader.open(kDriver, false);
  if (library == nullptr) return missing(loader.why(), kDriver, "install the NVIDIA driver");
  CudaApi cuda;
  std::string lost;
#define DISTRUN_CUDA_FUNCTION(member, symbol, arguments) find(loader, library, #symbol, cuda.member, lost);
  DISTRUN_CUDA_FUNCTIONS(DISTRUN_CUDA_FUNCTION)
#undef DISTRUN_CUDA_FUNCTION
  if (lost.empty()) return cuda;
  return Status(Errc::kUnsupported,
                std::string(kDriver) + " has no " + lost + ". Install a driver of CUDA 11.2 or newer (460 or newer)");
}

}  // namespace distrun::backend::cuda_parts
