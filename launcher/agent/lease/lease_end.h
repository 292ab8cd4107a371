// When the lease of an agent ends, in memory that the agent shares with the guard above it: an agent that is stopped
// cannot end its ranks, and the guard does it. Made before the fork; the agent writes, the guard reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "launcher/agent/lease/boot_time.h"
#include "runtime/base/fd.h"

namespace distrun::launcher {

class LeaseEnd {
 public:
  // Where the kernel refuses the memory, the agent alone goes by its lease.
  static LeaseEnd shared();
  LeaseEnd() = default;  // read by no other process

  void set(std::optional<BootTime> end);
  [[nodiscard]] std::optional<BootTime> get() const;
  // Readable when a lease has begun; a guard that waits for nothing else would not look. Not when it is extended.
  [[nodiscard]] int begun() const { return begun_.get(); }
  void take_begun() const;

 private:
  using Cell = std::atomic<std::int64_t>;
  static_assert(Cell::is_always_lock_free);
  static constexpr std::int64_t kNone = -1;
  struct Unmap {
    void operator()(Cell* cell) const;
  };
  std::unique_ptr<Cell, Unmap> end_;
  Fd begun_;
};

}  // namespace distrun::launcher
