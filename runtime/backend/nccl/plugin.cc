// The table of the backend `nccl`.
#include <memory>

#include "runtime/backend/cuda/device_table.h"
#include "runtime/backend/cuda/kernel_image.h"
#include "runtime/backend/nccl/group.h"
#include "runtime/backend/plugin/plugin_table.h"
#include "runtime/base/annotations.h"

namespace {

using distrun::Result;
namespace nccl = distrun::backend::nccl_plugin;
namespace plugin = distrun::backend::plugin;
using Table = plugin::PluginTable<nccl::NcclGroup, nccl::kKinds>;

constexpr std::int32_t kScore = 90;

// Each call looks for the libraries until they are found, because the program may load NCCL later (import torch). Never
// destroyed, see lanes.h.
Result<nccl::Lanes*> lanes() {
  static distrun::Mutex mutex;
  static nccl::Lanes* only DISTRUN_GUARDED_BY(mutex) = nullptr;
  const distrun::MutexLock lock(mutex);
  if (only != nullptr) return only;
  auto libraries = nccl::load_libraries(nccl::system_loader());
  if (!libraries.ok()) return libraries.status();
  only = new nccl::Lanes(*std::move(libraries), nccl::kernel_image());
  return only;
}

Result<nccl::Gpu*> gpu(std::int32_t device) {
  auto all = lanes();
  if (!all.ok()) return all.status();
  auto lane = (*all)->lane(device);
  if (!lane.ok()) return lane.status();
  return &(*lane)->gpu();
}

void capabilities(const distrun_backend_group_spec*, distrun_backend_capabilities* out) {
  const auto usable = lanes();
  out->available = usable.ok() ? 1 : 0;
  out->score = kScore;
  out->ops = nccl::kKinds;
  out->dtypes = plugin::kRealDTypes;
  out->devices = 1U << DISTRUN_BACKEND_CUDA;
  out->flags = DISTRUN_BACKEND_SCATTER_GATHER | DISTRUN_BACKEND_ASYNCHRONOUS;
  const bool asks_version = out->struct_size >= sizeof(*out);  // an older distrun has no field for it
  if (usable.ok() && asks_version) out->library_version = (*usable)->libraries().nccl_version;
  plugin::put_text(usable.ok() ? (*usable)->libraries().nccl_text : usable.status().message(), out->reason,
                   sizeof(out->reason));
}

std::int32_t create_group(const distrun_backend_group_spec* spec, distrun_backend_host_group* host_group,
                          distrun_backend_group** group, char* error, std::uint64_t error_size) {
  const auto all = lanes();
  if (!all.ok()) return plugin::answer(all.status(), error, error_size);
  return Table::hand_over(std::make_unique<nccl::NcclGroup>(**all, *spec, Table::host_of(host_group)), group, error,
                          error_size);
}

constexpr distrun_backend_table kTable = {.struct_size = sizeof(distrun_backend_table),
                                          .version = DISTRUN_BACKEND_VERSION,
                                          .name = "nccl",
                                          .capabilities = capabilities,
                                          .create_group = create_group,
                                          .start = Table::start,
                                          .progress = nullptr,
                                          .wait_fd = nullptr,
                                          .abort = Table::abort,
                                          .destroy = Table::destroy,
                                          .device = &nccl::DeviceTable<gpu>::kTable};

}  // namespace

std::int32_t distrun_backend_open(std::uint32_t version, const distrun_backend_host* host,
                                  const distrun_backend_table** table, char* error, std::uint64_t error_size) {
  return Table::open(version, host, kTable, table, error, error_size);
}
