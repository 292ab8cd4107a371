#include "runtime/backend/shm/window.h"

#include <atomic>

#include "runtime/base/status.h"

namespace distrun::backend::shm {
namespace {

using Atomic = std::atomic_ref<std::uint64_t>;
static_assert(Atomic::is_always_lock_free, "the counters are shared between processes");
static_assert(sizeof(TinyLine) == 64);

// seq_cst, as the doorbells' protocol requires (runtime/net/host/doorbell.h). On x86 these are plain loads.
std::uint64_t load(std::uint64_t* counter) { return Atomic(*counter).load(std::memory_order_seq_cst); }

}  // namespace

std::size_t Window::bytes_for(std::size_t members, std::size_t slot_bytes) {
  return members * (sizeof(MemberLines) + kSlots * slot_bytes);
}

// The memory is zeroed. Zero is the initial value of every counter.
Window::Window(std::span<std::byte> memory, std::size_t members, std::size_t slot_bytes)
    : lines_(reinterpret_cast<MemberLines*>(memory.data())),
      slots_(memory.data() + members * sizeof(MemberLines)),
      members_(members),
      slot_bytes_(slot_bytes) {
  DISTRUN_CHECK(memory.size() >= bytes_for(members, slot_bytes), "the window does not fit its memory");
  DISTRUN_CHECK(slot_bytes % 64 == 0, "slots are whole cache lines");
}

CounterView::CounterView(const Window& window, Which which, std::size_t self)
    : seen_(window.members(), 0), self_(self) {
  for (std::size_t i = 0; i < window.members(); ++i) counters_.push_back(&(window.lines(i).*which).value);
}

bool CounterView::reached(std::size_t member, std::uint64_t value) {
  if (seen_[member] < value) seen_[member] = load(counters_[member]);
  return seen_[member] >= value;
}

bool CounterView::all_reached(std::uint64_t value) { return seen_[self_] >= value && others_reached(value); }

bool CounterView::others_reached(std::uint64_t value) {
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    if (i != self_ && !reached(i, value)) return false;
  }
  return true;
}

void CounterView::store(std::uint64_t value) {
  seen_[self_] = value;
  Atomic(*counters_[self_]).store(value, std::memory_order_seq_cst);
}

void CounterView::publish(std::uint64_t value, const Bells& bells) {
  const std::uint64_t before = seen_[self_];
  store(value);
  if (others_reached(before + 1)) bells.ring();
}

void CounterView::publish_to(std::uint64_t value, const Bells& bells, int rank) {
  store(value);
  bells.ring_one(rank);
}

void CounterView::publish_and_ring(std::uint64_t value, const Bells& bells) {
  store(value);
  bells.ring();
}

}  // namespace distrun::backend::shm
