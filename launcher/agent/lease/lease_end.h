// The end of an agent's lease, in memory that the agent shares with the guard above it. A stopped agent cannot end its
// ranks, so the guard does. Create it before the fork. The agent writes, the guard reads.
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
  // If the kernel refuses the memory, only the agent watches its lease.
  static LeaseEnd shared();
  LeaseEnd() = default;  // not shared with another process

  void set(std::optional<BootTime> end);
  [[nodiscard]] std::optional<BootTime> get() const;
  // Readable when a lease has begun, to wake a guard that waits for nothing else. It does not become readable when the
  // lease is extended.
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
