// The progress token decides which thread drives the engine. At most one thread of the process holds it, and only the
// holder may touch the state of the loop and of the backends (docs/internals/threads.md). The engine's own thread holds
// it while no caller waits. A waiting caller takes it, so a small blocking operation needs no context switch.
//
// A caller that gives the token back wakes no thread. The engine's thread checks by itself, one tick after the last
// use. Callers that wait repeatedly therefore pay for no wake-up. An idle process has no wake-ups either: the engine's
// thread then holds the token and blocks in the wait set.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/store/program_state.h"

namespace distrun::engine {

// A futex: threads sleep while the word has the value that they read before.
class WakeWord {
 public:
  [[nodiscard]] std::uint32_t value() const { return word_.load(std::memory_order_seq_cst); }
  // Changes the word and wakes the sleepers. Makes no system call if there are none.
  void change_and_wake();
  // kOk: the word is no longer `seen`, or the wake-up was spurious. kTimeout: the deadline passed. kInterrupted: a
  // signal came.
  Status sleep_while(std::uint32_t seen, TimePoint deadline);

 private:
  std::atomic<std::uint32_t> word_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

class ProgressToken {
 public:
  enum class Holder : std::uint32_t { kNone, kEngine, kCaller };

  [[nodiscard]] bool try_take(Holder who);
  void give_back();  // only the holder calls this
  [[nodiscard]] Holder holder() const { return holder_.load(std::memory_order_seq_cst); }

  // --- callers ---
  // Between begin_waiting() and end_waiting() the engine's thread does not take the token. If it holds the token, it
  // gives it back as soon as it sees this count.
  void begin_waiting() { callers_.fetch_add(1, std::memory_order_seq_cst); }
  void end_waiting();
  // How the process's main thread waits in the engine. Stored for later questions.
  void note_main(net::MainWait wait) { main_.store(wait, std::memory_order_relaxed); }
  [[nodiscard]] net::MainWait main_wait() const { return main_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool callers_waiting() const { return callers_.load(std::memory_order_seq_cst) > 0; }
  // Changes when a handle is done or the token is free, so that waiting callers look again.
  WakeWord& news() { return news_; }

  // --- the engine's thread ---
  // Returns with the token held, once no caller has used it for one tick. False: stop() was called.
  bool take_when_quiet();
  void stop();

 private:
  void wait_while_callers_wait();

  std::atomic<Holder> holder_{Holder::kNone};
  std::atomic<std::uint32_t> callers_{0};
  std::atomic<std::uint32_t> uses_{0};  // number of uses by callers
  std::atomic<bool> parked_{false};     // the engine's thread sleeps until the last caller ends its wait
  std::atomic<bool> stop_{false};
  std::atomic<net::MainWait> main_{net::MainWait::kOutside};
  WakeWord news_;
  WakeWord park_;
};

// Scope guards for begin_waiting() / end_waiting(), and for the held token. A token that is not given back would stop
// the engine of this process for ever.
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

class HeldToken {  // the token was taken before
 public:
  explicit HeldToken(ProgressToken& token) : token_(token) {}
  HeldToken(const HeldToken&) = delete;
  HeldToken& operator=(const HeldToken&) = delete;
  ~HeldToken() { token_.give_back(); }

 private:
  ProgressToken& token_;
};

}  // namespace distrun::engine
