#include "runtime/engine/pacing.h"

#include <sched.h>

#include <algorithm>

namespace distrun::engine {
namespace {

// Short, because the engine's thread shares its core with the program.
constexpr Duration kEngineSpin = std::chrono::microseconds(10);

}  // namespace

void Pacing::longer() { spin_budget_ = std::min(spin_budget_ * 2, kMostSpin); }
void Pacing::shorter() { spin_budget_ = std::max(spin_budget_ / 2, kLeastSpin); }

void Pacing::moved() {
  if (spin_state_.yields > 0) longer();
  spin_state_ = {};
}

Pacing::Pause Pacing::pause(const Work& work, TimePoint deadline) {
  using Kind = Pause::Kind;
  if (work.must_be_asked) return {.kind = Kind::kAsk, .looks = spin_ ? kLooksPerCheck : kLeastYields};
  if (!work.caller && !work.polls_memory) return {};
  // A spin would take the core from the library's own threads.
  if (spin_ && !work.moves_elsewhere) return spin(work.caller);
  return work.caller ? yield(deadline) : Pause{};
}

Pacing::Pause Pacing::yield(TimePoint deadline) {
  const TimePoint now = Clock::now();
  if (deadline <= now) return {};
  if (spin_state_.yields == 0) spin_state_.until = now + spin_budget_;
  if (++spin_state_.yields > kLeastYields && now >= spin_state_.until) {
    shorter();
    return {};
  }
  give_up_core();
  return {.kind = Pause::Kind::kTurn};
}

Pacing::Pause Pacing::spin(bool caller) {
  const TimePoint now = Clock::now();
  if (spin_state_.until == TimePoint::min()) spin_state_.until = now + (caller ? spin_budget_ : kEngineSpin);
  if (now < spin_state_.until) return {.kind = Pause::Kind::kSpin, .looks = kLooksPerCheck};
  if (caller) shorter();
  return {};
}

void Pacing::found(const Pause& pause, const Work& work) {
  if (pause.kind == Pause::Kind::kSpin && work.caller) longer();
}

void Pacing::relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

void Pacing::between_looks() const {
  if (!spin_) give_up_core();
}

// The rank that this one waits for may need this core.
void Pacing::give_up_core() { ::sched_yield(); }

void Pacing::wake() {
  if (sleeping_.load(std::memory_order_seq_cst) && sleeping_.exchange(false, std::memory_order_seq_cst)) {
    wait_set_.wake();
  }
}

}  // namespace distrun::engine
