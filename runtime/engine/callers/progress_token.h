// Who drives: at most one thread of the process holds the token, and only it may touch the loop's and the backends'
// state (docs/threads.md). The engine's own thread holds it while no caller waits; a caller that waits takes it, so
// that a small blocking operation costs no context switch.
//
// A caller that gives the token back wakes nobody: the engine's thread looks by itself, a tick after the last use. So
// callers that wait again and again pay no wake-up, and a process in which nothing happens has no wake-ups: then the
// engine's thread holds the token and blocks in the wait set.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/store/program_state.h"

namespace distrun::engine {

// A futex: threads sleep while the word has the value they saw.
class WakeWord {
 public:
  [[nodiscard]] std::uint32_t value() const { return word_.load(std::memory_order_seq_cst); }
  // Changes the word and wakes who sleeps; no system call if nobody does.
  void change_and_wake();
  // kOk when the word is no longer `seen` (or for no reason), kTimeout at `deadline`, kInterrupted after a signal.
  Status sleep_while(std::uint32_t seen, TimePoint deadline);

 private:
  std::atomic<std::uint32_t> word_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

class ProgressToken {
 public:
  enum class Holder : std::uint32_t { kNobody, kEngine, kCaller };

  [[nodiscard]] bool try_take(Holder who);
  void give_back();  // by the holder
  [[nodiscard]] Holder holder() const { return holder_.load(std::memory_order_seq_cst); }

  // --- callers ---
  // Between begin and end the engine's thread keeps off, or gives the token back as soon as it sees this.
  void begin_waiting() { callers_.fetch_add(1, std::memory_order_seq_cst); }
  void end_waiting();
  // How the process's main thread waits here, for who asks later.
  void note_main(net::MainWait wait) { main_.store(wait, std::memory_order_relaxed); }
  [[nodiscard]] net::MainWait main_wait() const { return main_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool callers_waiting() const { return callers_.load(std::memory_order_seq_cst) > 0; }
  // Changes when something that a waiting caller looks for may have happened: a handle is done, the token is free.
  WakeWord& news() { return news_; }

  // --- the engine's thread ---
  // Returns with the token held, once no caller has used it for a tick; false when stop() was called.
  bool take_when_quiet();
  void stop();

 private:
  void park_while_callers_wait();

  std::atomic<Holder> holder_{Holder::kNobody};
  std::atomic<std::uint32_t> callers_{0};
  std::atomic<std::uint32_t> uses_{0};  // by callers
  std::atomic<bool> parked_{false};     // the engine's thread sleeps until the last caller ends its wait
  std::atomic<bool> stop_{false};
  std::atomic<net::MainWait> main_{net::MainWait::kOutside};
  WakeWord news_;
  WakeWord park_;
};

// Between begin_waiting() and end_waiting(), and with the token held, however the scope is left: a token that is not
// given back stops the process's engine for ever.
class WaitingCaller {
 public:
  WaitingCaller(ProgressToken& token, TimePoint deadline) : token_(token) {
    token_.begin_waiting();
    if (is_main()) token_.note_main(deadline == TimePoint::max() ? net::MainWait::kForever : net::MainWait::kLimited);
  }
  WaitingCaller(const WaitingCaller&) = delete;
  WaitingCaller& operator=(const WaitingCaller&) = delete;
  ~WaitingCaller() {
    if (is_main()) token_.note_main(net::MainWait::kOutside);
    token_.end_waiting();
  }

 private:
  static bool is_main();

  ProgressToken& token_;
};

class HeldToken {  // taken before
 public:
  explicit HeldToken(ProgressToken& token) : token_(token) {}
  HeldToken(const HeldToken&) = delete;
  HeldToken& operator=(const HeldToken&) = delete;
  ~HeldToken() { token_.give_back(); }

 private:
  ProgressToken& token_;
};

}  // namespace distrun::engine
