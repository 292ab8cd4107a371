// The table of the backend `mpi`.
#include <memory>
#include <string>

#include "runtime/backend/cuda/device_table.h"
#include "runtime/backend/mpi/devices.h"
#include "runtime/backend/mpi/group.h"
#include "runtime/backend/mpi/library/process.h"
#include "runtime/backend/plugin/plugin_table.h"

namespace {

using distrun::Status;
using distrun::backend::mpi_plugin::MpiGroup;
using distrun::backend::mpi_plugin::Process;
namespace plugin = distrun::backend::plugin;
using Table = plugin::PluginTable<MpiGroup, distrun::backend::mpi_plugin::kKinds>;
using Devices = distrun::backend::cuda_parts::DeviceTable<distrun::backend::mpi_plugin::find_gpu>;

constexpr std::int32_t kScore = 40;  // below `tcp`, whose operations can be cancelled

// Never destroyed, because MPI is finalised when the process exits.
Process& process() {
  static auto* const only = new Process(*Table::host.load());
  return *only;
}

// Why this MPI cannot move GPU tensors, with the cure. Ok if it can.
Status gpu_tensors() {
  if (process().gpu_aware()) return distrun::backend::mpi_plugin::gpus_usable();
  return {distrun::Errc::kUnsupported,
          "this MPI does not report that it is GPU-aware (MPIX_Query_cuda_support; Open MPI 5 reports it only after "
          "MPI_Init). Install one that is built with CUDA"};
}

std::string description(const Status& gpus) {
  const std::string& file = process().library().file;
  return file + (gpus.ok() ? ", CPU tensors, and CUDA tensors because it is GPU-aware"
                           : ", CPU tensors; no CUDA tensors: " + gpus.message());
}

void capabilities(const distrun_backend_group_spec* spec, distrun_backend_capabilities* out) {
  // An older distrun has no such field; it always asks for the backend.
  const bool asked_for = spec->struct_size < sizeof(*spec) || spec->asked_for != 0;
  const Status usable = process().usable(distrun::process_environment(), spec->num_members, asked_for);
  out->available = usable.ok() ? 1 : 0;
  out->score = kScore;
  out->ops = distrun::backend::mpi_plugin::kKinds;
  out->dtypes = plugin::kAllDTypes;
  const Status gpus = usable.ok() ? gpu_tensors() : usable;
  out->devices = 1U << DISTRUN_BACKEND_CPU | (gpus.ok() ? 1U << DISTRUN_BACKEND_CUDA : 0U);
  out->flags = DISTRUN_BACKEND_ASYNCHRONOUS;
  plugin::put_text(usable.ok() ? description(gpus) : usable.message(), out->reason, sizeof(out->reason));
}

std::int32_t create_group(const distrun_backend_group_spec* spec, distrun_backend_host_group* host_group,
                          distrun_backend_group** group, char* error, std::uint64_t error_size) {
  return Table::hand_over(MpiGroup::create(process(), *spec, Table::host_of(host_group)), group, error, error_size);
}

void destroy(distrun_backend_group* group) {
  Table::destroy(group);
  process().group_closed();
}

std::int32_t progress(distrun_backend_group* group) { return Table::group_of(group)->progress() ? 1 : 0; }

constexpr distrun_backend_table kTable = {.struct_size = sizeof(distrun_backend_table),
                                          .version = DISTRUN_BACKEND_VERSION,
                                          .name = "mpi",
                                          .capabilities = capabilities,
                                          .create_group = create_group,
                                          .start = Table::start,
                                          .progress = progress,
                                          .wait_fd = nullptr,
                                          .abort = Table::abort,
                                          .destroy = destroy,
                                          .device = &Devices::kTable};

}  // namespace

std::int32_t distrun_backend_open(std::uint32_t version, const distrun_backend_host* host,
                                  const distrun_backend_table** table, char* error, std::uint64_t error_size) {
  return Table::open(version, host, kTable, table, error, error_size);
}
