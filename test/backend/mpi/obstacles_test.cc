// The plug-in's errors for tensors on GPUs if something is missing. It uses fake_mpi.c, and a loader that finds only
// what the test allows.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "runtime/backend/cuda/kernel_image.h"
#include "runtime/backend/cuda/loader.h"
#include "runtime/backend/mpi/devices.h"
#include "runtime/backend/plugin/host_group.h"
#include "runtime/backend/plugin/include/distrun/distrun_backend.h"
#include "test/backend/nccl/fake_gpus.h"

extern "C" int fake_mpi_gpu_aware;

namespace distrun::backend {
namespace {

struct Machine {
  bool has_kernels = false;
  bool has_gpu = false;
  bool has_driver = false;
};
Machine machine;

void* symbol_of_driver(const std::string& wanted) {
  static const nccl_plugin::Libraries fake = test::fake_gpus::libraries();
#define DISTRUN_CUDA_FUNCTION(member, symbol, arguments) \
  if (wanted == #symbol) return reinterpret_cast<void*>(fake.cuda.member);
  DISTRUN_CUDA_FUNCTIONS(DISTRUN_CUDA_FUNCTION)
#undef DISTRUN_CUDA_FUNCTION
  return nullptr;
}

struct Answer {
  std::uint32_t devices = 0;
  std::string reason;
};

Answer ask() {
  const distrun_backend_table* table = nullptr;
  char error[256] = "";
  REQUIRE(distrun_backend_open(DISTRUN_BACKEND_VERSION, &plugin::host_table(), &table, error, sizeof(error)) == 0);
  const distrun_backend_group_spec spec = {.struct_size = sizeof(spec), .num_members = 1, .asked_for = 1};
  distrun_backend_capabilities can{};
  table->capabilities(&spec, &can);
  INFO(can.reason);
  REQUIRE(can.available == 1);
  REQUIRE((can.flags & DISTRUN_BACKEND_SCATTER_GATHER) == 0);  // tensors on the CPU work as before
  return {.devices = can.devices, .reason = can.reason};
}

constexpr std::uint32_t kCpuAlone = 1U << DISTRUN_BACKEND_CPU;

void refuses(const std::string& text) {
  const Answer answer = ask();
  CHECK(answer.devices == kCpuAlone);
  INFO(answer.reason);
  CHECK(answer.reason.starts_with("libmpi.so.40, CPU tensors; no CUDA tensors: "));
  CHECK(answer.reason.find(text) != std::string::npos);
  CHECK(answer.reason.size() + 1 < sizeof(distrun_backend_capabilities::reason));
}

}  // namespace

namespace cuda_parts {

const char* kernel_image() { return machine.has_kernels ? "no kernels" : nullptr; }

Loader system_loader() {
  return {.exists = [](const char*) { return machine.has_gpu; },
          .open = [](const std::string&, bool) -> void* { return machine.has_driver ? &machine : nullptr; },
          .find = [](void*, const char* symbol) { return symbol_of_driver(symbol); },
          .why = [] { return std::string(); },
          .plugin_file = {}};
}

}  // namespace cuda_parts

// After everything has been found, the result is kept.
TEST_CASE("mpi on GPUs: what keeps CUDA tensors from it is said, with the cure") {
  refuses(
      "does not report that it is GPU-aware (MPIX_Query_cuda_support; Open MPI 5 reports it only after MPI_Init). "
      "Install");
  fake_mpi_gpu_aware = 1;
  refuses("this build has no kernels for GPUs. Build it on a machine with nvcc");
  machine.has_kernels = true;
  refuses("no NVIDIA GPU: /dev/nvidiactl does not exist. Install the NVIDIA driver");
  machine.has_gpu = true;
  refuses("libcuda.so.1 not found; install the NVIDIA driver");
  CHECK(mpi_plugin::find_gpu(0).status().code() == Errc::kUnsupported);
  machine.has_driver = true;
  const Answer all = ask();
  CHECK(all.devices == (kCpuAlone | 1U << DISTRUN_BACKEND_CUDA));
  CHECK(all.reason == "libmpi.so.40, CPU tensors, and CUDA tensors because it is GPU-aware");
}

}  // namespace distrun::backend
