// Which GPU is current while MPI is called. It uses a fake of CUDA, and a fake MPI that the test controls (fake_mpi.c).
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <vector>

#include "runtime/backend/mpi/group.h"
#include "runtime/backend/plugin/host_group.h"
#include "test/backend/nccl/fake_gpus.h"
#include "test/backend/record.h"

extern "C" {
extern int fake_mpi_tasks;
extern int fake_mpi_finalizes;
extern int (*fake_mpi_ibarrier)(void* comm, void** request);
extern int (*fake_mpi_test)(void** request, int* done, void* status);
extern void (*fake_mpi_at_finalize)(void);
}

namespace distrun::backend::mpi_plugin {
namespace {

constexpr int kGpu = 1;

std::vector<int> seen;  // the GPU that was current at each call

int look_at_barrier(void*, void** request) {
  seen.push_back(test::fake_gpus::current_gpu());
  *request = &seen;
  return 0;
}

int look_at_test(void** request, int* done, void*) {
  seen.push_back(test::fake_gpus::current_gpu());
  *done = 1;
  *request = nullptr;
  return 0;
}

// A group with one member needs no store.
std::unique_ptr<MpiGroup> group_of_one(Process& process, test::Record& record, int device) {
  const int rank = 0;
  auto made = MpiGroup::create(process,
                               {.struct_size = sizeof(distrun_backend_group_spec),
                                .index = 0,
                                .members = &rank,
                                .num_members = 1,
                                .id = "alone",
                                .local_host = "",
                                .seconds = 30,
                                .store = nullptr,
                                .device_type = device},
                               record.host());
  REQUIRE(made.ok());
  return *std::move(made);
}

void run_barrier(MpiGroup& group, test::Record& record, std::uint64_t token) {
  group.start({.struct_size = sizeof(distrun_backend_operation), .kind = DISTRUN_BACKEND_BARRIER}, token);
  for (int i = 0; i < 20; ++i) group.progress();
  REQUIRE(record.outcome(token) == "ok");
}

}  // namespace

// The exit handler below makes the last check: it fails this program.
TEST_CASE("mpi on GPUs: the GPU is current in every call of MPI that may move a message, and not in MPI_Finalize") {
  fake_mpi_tasks = 1;
  fake_mpi_ibarrier = &look_at_barrier;
  fake_mpi_test = &look_at_test;
  auto& process = *new Process(plugin::host_table());  // never destroyed, as in the plug-in
  REQUIRE(process.usable({{"OMPI_COMM_WORLD_SIZE", "1"}, {"DISTRUN_RANK", "0"}}, 1, true).ok());
  // Registered before the handler that finalises MPI, because exit() runs the later one first.
  static const int registered = std::atexit([] {
    if (fake_mpi_finalizes != 1) std::_Exit(EXIT_FAILURE);
  });
  REQUIRE(registered == 0);
  test::Record on_gpu;
  test::Record on_host;
  const auto of_gpu = group_of_one(process, on_gpu, DISTRUN_BACKEND_CUDA);
  const auto of_host = group_of_one(process, on_host, DISTRUN_BACKEND_CPU);

  std::vector<float> data = {1, 2};
  const distrun_backend_segment segment = {.input = data.data(), .output = data.data(), .count = data.size()};
  of_gpu->start({.struct_size = sizeof(distrun_backend_operation),
                 .kind = DISTRUN_BACKEND_ALLREDUCE,
                 .dtype = DISTRUN_BACKEND_FLOAT32,
                 .reduce = DISTRUN_BACKEND_SUM,
                 .device_type = DISTRUN_BACKEND_CUDA,
                 .device_index = kGpu,
                 .segments = &segment,
                 .num_segments = 1,
                 .prescale = 1.0,
                 .postscale = 1.0},
                1);
  for (int i = 0; i < 20; ++i) of_gpu->progress();
  REQUIRE(on_gpu.outcome(1) == "ok");
  CHECK(test::fake_gpus::current_gpu() == -1);

  run_barrier(*of_gpu, on_gpu, 2);
  run_barrier(*of_host, on_host, 1);
  CHECK(seen.size() >= 4);
  CHECK(seen == std::vector<int>(seen.size(), kGpu));
  CHECK(test::fake_gpus::current_gpu() == -1);

  fake_mpi_at_finalize = [] {
    if (test::fake_gpus::current_gpu() != -1) std::_Exit(EXIT_FAILURE);
  };
}

}  // namespace distrun::backend::mpi_plugin
