// Decides what the token holder does when nothing moves: look again at once, yield the core, or sleep. Only the token
// holder may use this, except wake().
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/net/bytes/wait_set.h"

namespace distrun::engine {

class Pacing {
 public:
  // Limits of a caller's spin time. It is halved when a spin ends in a sleep, because the peers compute or wait for a
  // core. It is doubled when a spin finds something.
  static constexpr Duration kMostSpin = std::chrono::microseconds(100);
  static constexpr Duration kLeastSpin = std::chrono::microseconds(3);
  // While spinning, the loop reads the clock and polls the descriptors once per this number of turns.
  static constexpr int kLooksPerCheck = 64;
  // If there are more ranks than cores, yielding the core costs less than a sleep and a wake-up. The loop yields at
  // least this many times, and continues while the spin budget lasts.
  static constexpr int kLeastYields = 8;

  // `spin`: as in EngineOptions. The wait set outlives this.
  Pacing(net::WaitSet& wait_set, bool spin) : wait_set_(wait_set), spin_(spin) {}

  // The work that the loop waits for.
  struct Work {
    bool caller = false;           // a caller waits, not the engine's own thread
    bool must_be_asked = false;    // some operation moves only while its backend is polled
    bool polls_memory = false;     // some operation is worth a spin
    bool moves_elsewhere = false;  // every operation in flight is moved by threads of its backend
  };
  struct Pause {
    enum class Kind {
      kSleep,  // block now
      kTurn,   // the core was yielded: run one turn now
      kSpin,   // run `looks` turns, then poll the descriptors
      kAsk,    // the same, then also run the timers
    };
    Kind kind = Kind::kSleep;
    int looks = 0;
  };

  // Call this once per turn. The result says which checks are due even while operations move.
  struct Due {
    bool clock = false;   // check that this process was not stopped
    bool timers = false;  // poll the descriptors, run the timers, check for dead ranks
  };
  Due count_turn() {
    ++turns_;
    return {.clock = turns_ % kTurnsPerClock == 0, .timers = turns_ % kTurnsPerLook == 0};
  }
  void moved();                         // the turn moved something
  void restart() { spin_state_ = {}; }  // a new wait begins, or a sleep has ended
  // The turn moved nothing. Decides what to do now.
  Pause pause(const Work& work, TimePoint deadline);
  // Called before each look of a pause, and after a look that found nothing.
  static void relax();
  void between_looks() const;
  // A look of this pause found something.
  void found(const Pause& pause, const Work& work);
  static void give_up_core();

  // --- sleep ---
  void fall_asleep() { sleeping_.store(true, std::memory_order_seq_cst); }
  void wake_up() { sleeping_.store(false, std::memory_order_seq_cst); }
  // Any thread: ends the sleep, if there is one. Change the data that the sleeper looks at before this call.
  void wake();

 private:
  static constexpr std::uint32_t kTurnsPerClock = 16;
  static constexpr std::uint32_t kTurnsPerLook = 256;
  struct SpinState {                     // what was spent since something last moved
    TimePoint until = TimePoint::min();  // the end of the spin; min() before it starts
    int yields = 0;
  };
  Pause yield(TimePoint deadline);
  Pause spin(bool caller);
  void longer();
  void shorter();

  net::WaitSet& wait_set_;
  const bool spin_;
  SpinState spin_state_;
  Duration spin_budget_ = kMostSpin;  // of a caller
  std::uint32_t turns_ = 0;
  std::atomic<bool> sleeping_{false};  // the token holder blocks, or is about to block
};

}  // namespace distrun::engine
