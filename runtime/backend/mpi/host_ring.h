// A large all-reduce of tensors in host memory, around the ring. distrun's kernels compute the sums.
#pragma once

#include "runtime/backend/mpi/ring.h"
#include "runtime/backend/plugin/plugin_side.h"

namespace distrun::backend::mpi_plugin {

inline constexpr std::uint64_t kRingBytes = 64 << 10;  // smaller tensors use other methods (host_operation.h)

class HostRing final : private RingSide {
 public:
  // `operation` must outlive the ring.
  HostRing(const Channel& channel, const distrun_backend_operation& operation);
  static bool serves(const Channel& channel, const distrun_backend_operation& operation);

  Status test() { return ring_.test(); }
  [[nodiscard]] bool done() const { return ring_.done(); }

 private:
  Result<std::byte*> memory(std::size_t slot) override;
  Status add(std::size_t slot, const Range& where, bool last) override;
  Result<bool> added(std::size_t) override { return true; }

  Channel channel_;
  const distrun_backend_operation& operation_;
  Ring ring_;
};

}  // namespace distrun::backend::mpi_plugin
