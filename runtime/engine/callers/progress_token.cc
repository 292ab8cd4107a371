#include "runtime/engine/callers/progress_token.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>

namespace distrun::engine {
namespace {

// Long enough that a program of blocking operations does not compete with the engine's thread. Short enough that
// operations in flight do not stall when the program starts to compute.
constexpr Duration kTick = std::chrono::microseconds(500);
// A futex wait always gets a timeout, even without a deadline: only a wait with a timeout ends on every signal.
constexpr Duration kLongest = std::chrono::hours(1);

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t), "a futex is the atomic's own word");

}  // namespace

void WakeWord::change_and_wake() {
  word_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  ::syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

Status WakeWord::sleep_while(std::uint32_t seen, TimePoint deadline) {
  const TimePoint now = Clock::now();
  if (deadline <= now) return {Errc::kTimeout, "the deadline passed"};
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(std::min(deadline - now, kLongest)).count();
  const timespec timeout{.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const long result = ::syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, seen, &timeout, nullptr, 0);
  const int error = result < 0 ? errno : 0;
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  if (error == EINTR) return {Errc::kInterrupted, "a signal arrived during the wait"};
  if (error == ETIMEDOUT && Clock::now() >= deadline) return {Errc::kTimeout, "the deadline passed"};
  return {};
}

bool WaitingCaller::is_main() {
  thread_local const bool main = ::gettid() == ::getpid();
  return main;
}

bool ProgressToken::try_take(Holder who) {
  Holder free = Holder::kNone;
  if (!holder_.compare_exchange_strong(free, who, std::memory_order_seq_cst)) return false;
  if (who == Holder::kCaller) uses_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void ProgressToken::give_back() {
  holder_.store(Holder::kNone, std::memory_order_seq_cst);
  news_.change_and_wake();
}

void ProgressToken::end_waiting() {
  if (callers_.fetch_sub(1, std::memory_order_seq_cst) != 1) return;
  // This thread reads the flag after it has lowered the count. The engine's thread reads the count after it has set the
  // flag. So at least one of them sees the other.
  if (parked_.load(std::memory_order_seq_cst)) park_.change_and_wake();
}

void ProgressToken::wait_while_callers_wait() {
  const std::uint32_t seen = park_.value();
  parked_.store(true, std::memory_order_seq_cst);
  if (callers_waiting() && !stop_.load(std::memory_order_seq_cst)) {
    [[maybe_unused]] const Status woken = park_.sleep_while(seen, TimePoint::max());
  }
  parked_.store(false, std::memory_order_seq_cst);
}

bool ProgressToken::take_when_quiet() {
  std::uint32_t uses = uses_.load(std::memory_order_relaxed);
  bool quiet = uses == 0;  // before the first use there is nothing to wait for
  while (!stop_.load(std::memory_order_seq_cst)) {
    if (quiet && !callers_waiting() && try_take(Holder::kEngine)) return true;
    [[maybe_unused]] const Status ticked = park_.sleep_while(park_.value(), Clock::now() + kTick);
    if (callers_waiting()) wait_while_callers_wait();
    const std::uint32_t now = uses_.load(std::memory_order_relaxed);
    quiet = now == uses;
    uses = now;
  }
  return false;
}

void ProgressToken::stop() {
  stop_.store(true, std::memory_order_seq_cst);
  park_.change_and_wake();
}

}  // namespace distrun::engine
