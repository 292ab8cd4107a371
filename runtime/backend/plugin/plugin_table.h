// The functions of a plug-in's table that are the same for every plug-in of this project. They are made for the
// plug-in's own Group class, which needs:
//     void start(const distrun_backend_operation&, std::uint64_t token);
//     void abort(std::int32_t code, const char* cause);
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/backend/plugin/plugin_side.h"

namespace distrun::backend::plugin {

// All dtypes of the interface.
inline constexpr std::uint32_t kAllDTypes = (1U << kNumDTypes) - 1;
// Those that have all reductions.
#define DISTRUN_DTYPE(id, number, c_name, name, bytes, family, ...) \
  | (DTypeFamily::family < DTypeFamily::kComplex ? 1U << number : 0U)
inline constexpr std::uint32_t kRealDTypes = 0U
#include "runtime/base/dtypes.def"
    ;
#undef DISTRUN_DTYPE

// `kKinds`: bits of the operations that the plug-in offers.
template <class Group, std::uint32_t kKinds>
struct PluginTable {
  // Atomic, because distrun_backend_open may run on several threads. All of them store the same table.
  static inline std::atomic<const distrun_backend_host*> host{nullptr};

  static Group* group_of(distrun_backend_group* group) { return reinterpret_cast<Group*>(group); }
  static Host host_of(distrun_backend_host_group* group) { return {host.load(), group}; }

  static std::int32_t hand_over(Result<std::unique_ptr<Group>> made, distrun_backend_group** group, char* error,
                                std::uint64_t error_size) {
    if (!made.ok()) return answer(made.status(), error, error_size);
    *group = reinterpret_cast<distrun_backend_group*>((*std::move(made)).release());
    return DISTRUN_BACKEND_OK;
  }

  static std::int32_t start(distrun_backend_group* group, const distrun_backend_operation* operation,
                            std::uint64_t token) {
    if ((kKinds >> operation->kind & 1U) == 0) return DISTRUN_BACKEND_UNSUPPORTED;
    group_of(group)->start(*operation, token);
    return DISTRUN_BACKEND_OK;
  }

  static void abort(distrun_backend_group* group, std::int32_t code, const char* cause) {
    group_of(group)->abort(code, cause);
  }

  static void destroy(distrun_backend_group* group) { delete group_of(group); }

  static std::int32_t open(std::uint32_t version, const distrun_backend_host* theirs, const distrun_backend_table& ours,
                           const distrun_backend_table** table, char* error, std::uint64_t error_size) {
    const Status status = check_version(version, theirs);
    if (status.ok()) {
      host = theirs;
      *table = &ours;
    }
    return answer(status, error, error_size);
  }
};

}  // namespace distrun::backend::plugin
