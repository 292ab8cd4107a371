#include "runtime/backend/plugin/plugin_side.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace distrun::backend::plugin {

void AbortGate::set(std::int32_t code, const char* cause) {
  {
    const MutexLock lock(mutex_);
    if (!why_.ok()) return;
    const bool known = code > DISTRUN_BACKEND_OK && code <= DISTRUN_BACKEND_INTERNAL;
    why_ = Status(known ? static_cast<Errc>(code) : Errc::kAborted, cause == nullptr ? "" : cause);
  }
  is_set_.store(1, std::memory_order_release);
  is_set_.notify_all();
}

Status AbortGate::why() const {
  const MutexLock lock(mutex_);
  return why_;
}

Status AbortGate::wait() const {
  is_set_.wait(0, std::memory_order_acquire);
  return why();
}

Status Host::mac(const void* data, std::size_t size, unsigned char* mac) const {
  const int code = table_->mac(group_, data, size, mac);
  if (code == DISTRUN_BACKEND_OK) return {};
  return {static_cast<Errc>(code), "distrun gave no MAC for this group"};
}

void finish_average(const distrun_backend_operation& operation, std::size_t members, std::byte* data,
                    std::size_t count) {
  if (operation.reduce != DISTRUN_BACKEND_AVERAGE || count == 0) return;
  const std::array<const std::byte*, 1> source = {data};
  kernels::reduce({.dtype = dtype_of(operation),
                   .op = ReduceOp::kAverage,
                   .finish = kernels::finish_of(ReduceOp::kAverage, 1.0, members)},
                  source, data, count);
}

void reduce_parts(const distrun_backend_operation& operation, std::span<const std::byte* const> parts, std::byte* out,
                  std::size_t count) {
  const ReduceOp op = reduce_of(operation);
  kernels::reduce({.dtype = dtype_of(operation), .op = op, .finish = kernels::finish_of(op, 1.0, parts.size())}, parts,
                  out, count);
}

void put_text(const std::string& text, char* buffer, std::uint64_t size) {
  if (size == 0) return;
  const std::size_t length = std::min<std::size_t>(text.size(), size - 1);
  std::memcpy(buffer, text.data(), length);
  buffer[length] = '\0';
}

std::int32_t answer(const Status& status, char* error, std::uint64_t error_size) {
  if (!status.ok()) put_text(status.message(), error, error_size);
  return static_cast<std::int32_t>(status.code());
}

Status check_version(std::uint32_t version, const distrun_backend_host* host) {
  if (version == DISTRUN_BACKEND_VERSION && host->struct_size >= sizeof(distrun_backend_host)) return {};
  return {Errc::kUnsupported,
          "this plug-in and libdistrun.so are from different versions of distrun. Install both from one version"};
}

}  // namespace distrun::backend::plugin
