// The function table of the demo backend. It moves data through distrun's store, which is slow but works everywhere. A
// real backend would use the store only to exchange addresses. Its calls block. So it does not set
// DISTRUN_BACKEND_ASYNCHRONOUS, and distrun gives every group a thread.
#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>

#include "group.h"

namespace {

std::atomic<const distrun_backend_host*> host{nullptr};  // distrun_backend_open may run on several threads

demo::Group* group_of(distrun_backend_group* group) { return reinterpret_cast<demo::Group*>(group); }

void capabilities(const distrun_backend_group_spec*, distrun_backend_capabilities* out) {
  out->available = 1;
  out->score = 1;  // lower than any faster backend; used only with --backend demo
  out->ops = 1U << DISTRUN_BACKEND_ALLREDUCE | 1U << DISTRUN_BACKEND_ALLGATHER | 1U << DISTRUN_BACKEND_BROADCAST;
  out->dtypes = (1U << (DISTRUN_BACKEND_BOOL + 1)) - 1;
  out->devices = 1U << DISTRUN_BACKEND_CPU;
  out->flags = DISTRUN_BACKEND_SCATTER_GATHER;
  std::snprintf(out->reason, sizeof(out->reason), "an example: moves data through the store");
}

int32_t create_group(const distrun_backend_group_spec* spec, distrun_backend_host_group* host_group,
                     distrun_backend_group** group, char* error, uint64_t error_size) {
  try {
    auto made = std::make_unique<demo::Group>(*spec, host.load(), host_group);
    *group = reinterpret_cast<distrun_backend_group*>(made.release());
    return DISTRUN_BACKEND_OK;
  } catch (const std::exception& failure) {
    std::snprintf(error, error_size, "demo: %s", failure.what());
    return DISTRUN_BACKEND_OUT_OF_MEMORY;
  }
}

int32_t start(distrun_backend_group* group, const distrun_backend_operation* operation, uint64_t token) {
  if (operation->kind > DISTRUN_BACKEND_BROADCAST || operation->dtype > DISTRUN_BACKEND_BOOL) {
    return DISTRUN_BACKEND_UNSUPPORTED;
  }
  group_of(group)->run(*operation, token);
  return DISTRUN_BACKEND_OK;
}

void abort_group(distrun_backend_group* group, int32_t code, const char* cause) { group_of(group)->abort(code, cause); }

void destroy(distrun_backend_group* group) { delete group_of(group); }

}  // namespace

int32_t distrun_backend_open(uint32_t version, const distrun_backend_host* given, const distrun_backend_table** table,
                             char* error, uint64_t error_size) {
  if (version != DISTRUN_BACKEND_VERSION) {
    std::snprintf(error, error_size, "demo knows version %d of the interface, not %u", DISTRUN_BACKEND_VERSION,
                  version);
    return DISTRUN_BACKEND_UNSUPPORTED;
  }
  host = given;
  static const distrun_backend_table demo_table = {sizeof(distrun_backend_table),
                                                   DISTRUN_BACKEND_VERSION,
                                                   "demo",
                                                   capabilities,
                                                   create_group,
                                                   start,
                                                   nullptr,  // progress: start() does all the work
                                                   nullptr,  // wait_fd
                                                   abort_group,
                                                   destroy};
  *table = &demo_table;
  return DISTRUN_BACKEND_OK;
}
