// What the holder of the token does when nothing moves: look again at once, give up the core, or sleep. Token holder,
// except wake().
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/net/bytes/wait_set.h"

namespace distrun::engine {

class Pacing {
 public:
  // A caller's spin: halved when it ends in a sleep (peers that compute, or wait for a core), doubled when it does not.
  static constexpr Duration kMostSpin = std::chrono::microseconds(100);
  static constexpr Duration kLeastSpin = std::chrono::microseconds(3);
  // While spinning, the clock is read and the descriptors are asked once for this many looks.
  static constexpr int kLooksPerCheck = 64;
  // Where ranks outnumber cores, giving up the core costs less than a sleep and a wake: this often, then as long as the
  // budget allows.
  static constexpr int kLeastYields = 8;

  // `spin`: as in EngineOptions. The wait set outlives this.
  Pacing(net::WaitSet& wait_set, bool spin) : wait_set_(wait_set), spin_(spin) {}

  // What there is to wait for.
  struct Work {
    bool caller = false;           // a caller waits, not the engine's own thread
    bool must_be_asked = false;    // some operation moves only while its backend is asked
    bool polls_memory = false;     // some operation is worth a spin
    bool moves_elsewhere = false;  // all that moves does so on threads of its own
  };
  struct Pause {
    enum class Kind {
      kSleep,  // it is time to block
      kTurn,   // the core was given up: one turn now
      kSpin,   // `looks` turns, then the descriptors
      kAsk,    // the same, then also the timers
    };
    Kind kind = Kind::kSleep;
    int looks = 0;
  };

  // Once per turn, whatever came of it: what is due although something moves.
  struct Due {
    bool clock = false;   // see that this process still runs
    bool timers = false;  // descriptors, timers and deaths
  };
  Due count_turn() {
    ++turns_;
    return {.clock = turns_ % kTurnsPerClock == 0, .timers = turns_ % kTurnsPerLook == 0};
  }
  void moved();                       // the turn did
  void restart() { patience_ = {}; }  // a new wait begins, or a sleep has ended
  // The turn moved nothing.
  Pause pause(const Work& work, TimePoint deadline);
  // Before each look of a pause, and after one that found nothing.
  static void relax();
  void between_looks() const;
  // A look of this pause found something.
  void found(const Pause& pause, const Work& work);
  static void give_up_core();

  // --- sleep ---
  void fall_asleep() { sleeping_.store(true, std::memory_order_seq_cst); }
  void wake_up() { sleeping_.store(false, std::memory_order_seq_cst); }
  // Any thread: ends the sleep, if there is one. Whoever changes what the sleeper looks at does so before.
  void wake();

 private:
  static constexpr std::uint32_t kTurnsPerClock = 16;
  static constexpr std::uint32_t kTurnsPerLook = 256;
  struct Patience {                      // what was spent since something moved
    TimePoint until = TimePoint::min();  // the end of the spin; min() before it starts
    int yields = 0;
  };
  Pause yield(TimePoint deadline);
  Pause spin(bool caller);
  void longer();
  void shorter();

  net::WaitSet& wait_set_;
  const bool spin_;
  Patience patience_;
  Duration spin_budget_ = kMostSpin;  // of a caller
  std::uint32_t turns_ = 0;
  std::atomic<bool> sleeping_{false};  // the token holder blocks, or is about to
};

}  // namespace distrun::engine
