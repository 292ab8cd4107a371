// The table of the backend `nccl`.
#include <memory>

#include "runtime/backend/nccl/group.h"
#include "runtime/backend/nccl/kernel_image.h"
#include "runtime/backend/plugin/guest_table.h"
#include "runtime/base/annotations.h"

namespace {

using distrun::Result;
namespace nccl = distrun::backend::nccl_plugin;
namespace plugin = distrun::backend::plugin;
using Table = plugin::GuestTable<nccl::Group, nccl::kKinds>;

constexpr std::int32_t kScore = 90;

// Looked for until found: the program may load NCCL later (import torch). Never destroyed, see lanes.h.
Result<nccl::Lanes*> lanes() {
  static distrun::Mutex mutex;
  static nccl::Lanes* only DISTRUN_GUARDED_BY(mutex) = nullptr;
  const distrun::MutexLock lock(mutex);
  if (only != nullptr) return only;
  auto libraries = nccl::load_libraries(nccl::system_loader());
  if (!libraries.ok()) return libraries.status();
  only = new nccl::Lanes(*std::move(libraries), kNcclKernels);
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
  out->dtypes = plugin::kAllDTypes;
  out->devices = 1U << DISTRUN_BACKEND_CUDA;
  out->flags = DISTRUN_BACKEND_SCATTER_GATHER | DISTRUN_BACKEND_ASYNCHRONOUS;
  plugin::put_text(usable.ok() ? (*usable)->libraries().nccl_text : usable.status().message(), out->reason,
                   sizeof(out->reason));
}

std::int32_t create_group(const distrun_backend_group_spec* spec, distrun_backend_host_group* host_group,
                          distrun_backend_group** group, char* error, std::uint64_t error_size) {
  const auto all = lanes();
  if (!all.ok()) return plugin::answer(all.status(), error, error_size);
  return Table::hand_over(std::make_unique<nccl::Group>(**all, *spec, Table::host_of(host_group)), group, error,
                          error_size);
}

std::int32_t mark(std::int32_t device, void* stream, void** out, char* error, std::uint64_t error_size) {
  auto its = gpu(device);
  if (!its.ok()) return plugin::answer(its.status(), error, error_size);
  auto made = (*its)->mark(stream);
  if (!made.ok()) return plugin::answer(made.status(), error, error_size);
  *out = (*std::move(made)).release();
  return DISTRUN_BACKEND_OK;
}

void unmark(void* given) {
  std::unique_ptr<nccl::Mark> owned(static_cast<nccl::Mark*>(given));
  nccl::Gpu* its = owned->gpu;
  its->unmark(std::move(owned));
}

std::int32_t allocate(std::int32_t device, std::uint64_t size, const void* element, std::uint64_t element_size,
                      void** memory, char* error, std::uint64_t error_size) {
  auto its = gpu(device);
  if (!its.ok()) return plugin::answer(its.status(), error, error_size);
  auto made = (*its)->allocate(size, {static_cast<const std::byte*>(element), element_size});
  if (!made.ok()) return plugin::answer(made.status(), error, error_size);
  *memory = *made;
  return DISTRUN_BACKEND_OK;
}

void release(std::int32_t device, void* memory) {
  if (auto its = gpu(device); its.ok()) (*its)->release(memory);
}

std::int32_t stage(std::int32_t device, std::uint64_t size, void** memory, char* error, std::uint64_t error_size) {
  auto its = gpu(device);
  if (!its.ok()) return plugin::answer(its.status(), error, error_size);
  auto made = (*its)->stage(size);
  if (!made.ok()) return plugin::answer(made.status(), error, error_size);
  *memory = *made;
  return DISTRUN_BACKEND_OK;
}

void unstage(std::int32_t device, void* memory) {
  if (auto its = gpu(device); its.ok()) (*its)->unstage(memory);
}

constexpr distrun_backend_device kDevice = {.struct_size = sizeof(distrun_backend_device),
                                            .reserved = 0,
                                            .mark = mark,
                                            .unmark = unmark,
                                            .allocate = allocate,
                                            .release = release,
                                            .stage = stage,
                                            .unstage = unstage};

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
                                          .device = &kDevice};

}  // namespace

std::int32_t distrun_backend_open(std::uint32_t version, const distrun_backend_host* host,
                                  const distrun_backend_table** table, char* error, std::uint64_t error_size) {
  return Table::open(version, host, kTable, table, error, error_size);
}
