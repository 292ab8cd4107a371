// The table of the backend `gloo`. Its calls block, so every group gets a thread from distrun.
#include <gloo/config.h>

#include <atomic>
#include <memory>
#include <string>

#include "runtime/backend/gloo/group.h"
#include "runtime/backend/gloo/operations.h"

namespace {

using distrun::Status;
using distrun::backend::gloo_plugin::Group;
namespace plugin = distrun::backend::plugin;

constexpr std::int32_t kScore =
    30;  // below `tcp`, which is verified packet by packet to nobody's port and needs no thread

std::atomic<const distrun_backend_host*> host_table{nullptr};  // distrun_backend_open may run on several threads

Group* group_of(distrun_backend_group* group) { return reinterpret_cast<Group*>(group); }

void capabilities(const distrun_backend_group_spec*, distrun_backend_capabilities* out) {
  out->available = 1;
  out->score = kScore;
  out->ops = distrun::backend::gloo_plugin::kKinds;
  out->dtypes = (1U << (DISTRUN_BACKEND_BOOL + 1)) - 1;
  out->devices = 1U << DISTRUN_BACKEND_CPU;
  plugin::put_text("ranks by TCP, through libgloo", out->reason, sizeof(out->reason));
}

std::int32_t create_group(const distrun_backend_group_spec* spec, distrun_backend_host_group* host_group,
                          distrun_backend_group** group, char* error, std::uint64_t error_size) {
  auto made = Group::create(*spec, plugin::Host(host_table.load(), host_group));
  if (!made.ok()) return plugin::answer(made.status(), error, error_size);
  *group = reinterpret_cast<distrun_backend_group*>((*std::move(made)).release());
  return DISTRUN_BACKEND_OK;
}

std::int32_t start(distrun_backend_group* group, const distrun_backend_operation* operation, std::uint64_t token) {
  if ((distrun::backend::gloo_plugin::kKinds >> operation->kind & 1U) == 0) return DISTRUN_BACKEND_UNSUPPORTED;
  group_of(group)->run(*operation, token);
  return DISTRUN_BACKEND_OK;
}

void abort_group(distrun_backend_group* group, std::int32_t code, const char* cause) {
  group_of(group)->abort(code, cause);
}

void destroy(distrun_backend_group* group) { delete group_of(group); }

constexpr distrun_backend_table kTable = {.struct_size = sizeof(distrun_backend_table),
                                          .version = DISTRUN_BACKEND_VERSION,
                                          .name = "gloo",
                                          .capabilities = capabilities,
                                          .create_group = create_group,
                                          .start = start,
                                          .progress = nullptr,
                                          .wait_fd = nullptr,
                                          .abort = abort_group,
                                          .destroy = destroy};

}  // namespace

std::int32_t distrun_backend_open(std::uint32_t version, const distrun_backend_host* host,
                                  const distrun_backend_table** table, char* error, std::uint64_t error_size) {
  const Status status = plugin::check_version(version, host);
  if (status.ok()) {
    host_table = host;
    *table = &kTable;
  }
  return plugin::answer(status, error, error_size);
}
