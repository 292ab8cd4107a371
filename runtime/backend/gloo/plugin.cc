// The table of the backend `gloo`. Its calls block, so distrun makes a thread for every group.
#include <dlfcn.h>
#include <gloo/config.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include <filesystem>
#include <initializer_list>
#include <string>
#include <typeinfo>

#include "runtime/backend/gloo/group.h"
#include "runtime/backend/gloo/operations.h"
#include "runtime/backend/plugin/plugin_table.h"

namespace {

using distrun::backend::gloo_plugin::GlooGroup;
namespace plugin = distrun::backend::plugin;
using Table = plugin::PluginTable<GlooGroup, distrun::backend::gloo_plugin::kKinds>;

constexpr std::int32_t kScore = 30;  // below `tcp`, which authenticates every connection itself and needs no thread

// The library whose Gloo code this plug-in would run instead of libgloo's, or "". Libraries that the program is linked
// with, or has loaded with RTLD_GLOBAL, come before a plug-in's own libraries. libtorch_cpu.so has most of Gloo's
// symbols, in another version. Some objects and calls would then come from one version, and some from the other.
std::string other_gloo() {
  for (const void* one :
       std::initializer_list<const void*>{reinterpret_cast<const void*>(&::gloo::transport::tcp::CreateDevice),
                                          &typeid(::gloo::rendezvous::Context), &typeid(::gloo::rendezvous::Store)}) {
    Dl_info info{};
    if (::dladdr(one, &info) == 0 || info.dli_fname == nullptr) continue;
    const std::string file = std::filesystem::path(info.dli_fname).filename();
    if (!file.starts_with("libgloo") && !file.starts_with("libdistrun_backend_gloo")) return file;
  }
  return {};
}

void capabilities(const distrun_backend_group_spec*, distrun_backend_capabilities* out) {
  const std::string other = other_gloo();
  out->available = other.empty() ? 1 : 0;
  out->score = kScore;
  out->ops = distrun::backend::gloo_plugin::kKinds;
  out->dtypes = plugin::kAllDTypes;
  out->devices = 1U << DISTRUN_BACKEND_CPU;
  plugin::put_text(other.empty() ? "ranks by TCP, through libgloo"
                                 : "the program has loaded " + other +
                                       " with global symbols, which would mix its Gloo with libgloo. Load it without "
                                       "RTLD_GLOBAL, load it after init(), or use another backend",
                   out->reason, sizeof(out->reason));
}

std::int32_t create_group(const distrun_backend_group_spec* spec, distrun_backend_host_group* host_group,
                          distrun_backend_group** group, char* error, std::uint64_t error_size) {
  return Table::hand_over(GlooGroup::create(*spec, Table::host_of(host_group)), group, error, error_size);
}

std::int32_t try_now(distrun_backend_group* group, const distrun_backend_operation* operation) {
  return Table::group_of(group)->try_now(*operation) ? DISTRUN_BACKEND_OK : DISTRUN_BACKEND_TIMEOUT;
}

constexpr distrun_backend_table kTable = {.struct_size = sizeof(distrun_backend_table),
                                          .version = DISTRUN_BACKEND_VERSION,
                                          .name = "gloo",
                                          .capabilities = capabilities,
                                          .create_group = create_group,
                                          .start = Table::start,
                                          .progress = nullptr,
                                          .wait_fd = nullptr,
                                          .abort = Table::abort,
                                          .destroy = Table::destroy,
                                          .device = nullptr,
                                          .try_now = try_now};

}  // namespace

std::int32_t distrun_backend_open(std::uint32_t version, const distrun_backend_host* host,
                                  const distrun_backend_table** table, char* error, std::uint64_t error_size) {
  return Table::open(version, host, kTable, table, error, error_size);
}
