// Shared code for the plug-ins of this project, on the plug-in's side of the table. Each plug-in is a library with its
// own copy of this code.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/backend/kernels/kernels.h"
#include "runtime/backend/plugin/include/distrun/distrun_backend.h"
#include "runtime/base/annotations.h"
#include "runtime/base/status.h"

namespace distrun::backend::plugin {

// The reason why a group was aborted. The first cause is kept. Thread-safe. If a library call ends because a peer is
// gone, the caller may wait here for the cause.
class AbortGate {
 public:
  void set(std::int32_t code, const char* cause);
  [[nodiscard]] Status why() const;  // ok until set
  [[nodiscard]] Status wait() const;

 private:
  mutable Mutex mutex_;
  std::atomic<int> is_set_{0};  // not a condition variable: its wait() needs a newer libstdc++ than the wheel may use
  Status why_ DISTRUN_GUARDED_BY(mutex_);
};

// distrun's side of a group, as the plug-in sees it.
class Host {
 public:
  Host(const distrun_backend_host* table, distrun_backend_host_group* group) : table_(table), group_(group) {}
  void complete(std::uint64_t token, const Status& status) const {
    const char* text = status.ok() ? nullptr : status.message().c_str();
    table_->complete(group_, token, static_cast<std::int32_t>(status.code()), text);
  }
  void peer_lost(int world_rank) const { table_->peer_lost(group_, world_rank); }
  [[nodiscard]] Status mac(const void* data, std::size_t size, unsigned char* mac) const;

 private:
  const distrun_backend_host* table_;
  distrun_backend_host_group* group_;
};

// Completes the arithmetic that a library does not do: turns `count` elements of a finished sum into an average, in
// place. Does nothing for other reductions.
void finish_average(const distrun_backend_operation& operation, std::size_t members, std::byte* data,
                    std::size_t count);

// Reduces `count` elements of each member's part, in member order. For an average it also divides. `out` may be one of
// the parts.
void reduce_parts(const distrun_backend_operation& operation, std::span<const std::byte* const> parts, std::byte* out,
                  std::size_t count);

inline OpKind kind_of(const distrun_backend_operation& operation) { return static_cast<OpKind>(operation.kind); }
inline DType dtype_of(const distrun_backend_operation& operation) { return static_cast<DType>(operation.dtype); }
inline ReduceOp reduce_of(const distrun_backend_operation& operation) {
  return static_cast<ReduceOp>(operation.reduce);
}

// Copies `text` into a buffer of the caller, zero-terminated. Cuts it if it does not fit.
void put_text(const std::string& text, char* buffer, std::uint64_t size);
// Returns the code of `status` and copies its text to `error`.
std::int32_t answer(const Status& status, char* error, std::uint64_t error_size);
// distrun_backend_open() calls this first. It refuses a version of the interface that this build does not know.
Status check_version(std::uint32_t version, const distrun_backend_host* host);

}  // namespace distrun::backend::plugin
