// Where this rank stops: the number of the first call of should_stop() that is answered with true, the same on all
// ranks. Until somebody asks the ranks to stop, a call costs one atomic addition and no message. Then
// (stop_agreement.h) each rank holds: it tells how many of its calls were answered with false, and later ones wait
// until it is known where all stop, which is behind every call that was answered.
#pragma once

#include <atomic>
#include <cstdint>

namespace distrun::engine {

class StopPoint {
 public:
  struct Call {
    std::uint64_t number = 0;  // from 1 on
    bool held = false;         // not answered yet: ask reached() once it is known()
  };

  // --- callers ---
  Call count() {
    const std::uint64_t before = state_.fetch_add(1, std::memory_order_seq_cst);
    return {.number = (before & ~kHeld) + 1, .held = (before & kHeld) != 0};
  }
  // A held call that was interrupted was none.
  void take_back() { state_.fetch_sub(1, std::memory_order_seq_cst); }
  [[nodiscard]] bool known() const { return first_.load(std::memory_order_acquire) != 0; }
  [[nodiscard]] bool reached(std::uint64_t number) const { return number >= first_.load(std::memory_order_acquire); }

  // --- the holder of the progress token ---
  // How many calls have been answered with false. Once.
  std::uint64_t hold() { return state_.fetch_or(kHeld, std::memory_order_seq_cst); }
  void decide(std::uint64_t first) { first_.store(first, std::memory_order_release); }

 private:
  static constexpr std::uint64_t kHeld = std::uint64_t{1} << 63U;
  std::atomic<std::uint64_t> state_{0};  // calls, and kHeld
  std::atomic<std::uint64_t> first_{0};  // 0: not known
};

}  // namespace distrun::engine
