// The number of the first call of should_stop() that returns true. It is the same on all ranks. Until a rank asks to
// stop, a call costs one atomic addition and no message. After a request (stop_agreement.h) each rank holds: it reports
// how many calls have returned false, and later calls wait. Then the ranks agree on a call after every call that was
// answered.
#pragma once

#include <atomic>
#include <cstdint>

namespace distrun::engine {

class StopPoint {
 public:
  struct Call {
    std::uint64_t number = 0;  // starts at 1
    bool held = false;         // not answered yet: wait for known(), then ask reached()
  };

  // --- callers ---
  Call count() {
    const std::uint64_t before = state_.fetch_add(1, std::memory_order_seq_cst);
    return {.number = (before & ~kHeld) + 1, .held = (before & kHeld) != 0};
  }
  // A held call that was interrupted is not counted.
  void take_back() { state_.fetch_sub(1, std::memory_order_seq_cst); }
  [[nodiscard]] bool known() const { return first_.load(std::memory_order_acquire) != 0; }
  [[nodiscard]] bool reached(std::uint64_t number) const { return number >= first_.load(std::memory_order_acquire); }

  // --- the holder of the progress token ---
  // Starts to hold, and returns how many calls have returned false. Called once.
  std::uint64_t hold() { return state_.fetch_or(kHeld, std::memory_order_seq_cst); }
  void decide(std::uint64_t first) { first_.store(first, std::memory_order_release); }

 private:
  static constexpr std::uint64_t kHeld = std::uint64_t{1} << 63U;
  std::atomic<std::uint64_t> state_{0};  // number of calls, and the bit kHeld
  std::atomic<std::uint64_t> first_{0};  // 0: not known yet
};

}  // namespace distrun::engine
