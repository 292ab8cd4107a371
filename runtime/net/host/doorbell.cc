#include "runtime/net/host/doorbell.h"

#include <unistd.h>

#include <utility>

namespace distrun::net {

Doorbells::Doorbells(std::vector<DoorbellLine*> lines, std::vector<int> event_fds, int self)
    : lines_(std::move(lines)), event_fds_(std::move(event_fds)), self_(self), word_(0) {}

void Doorbells::arm() {
  word_ |= 1U;
  lines_[static_cast<std::size_t>(self_)]->word.store(word_, std::memory_order_seq_cst);
}

void Doorbells::disarm() {
  if ((word_ & 1U) == 0) return;
  word_ += 1;
  // Relaxed: a writer that still reads the odd value causes a needless wake-up. The next arm() orders everything again.
  lines_[static_cast<std::size_t>(self_)]->word.store(word_, std::memory_order_relaxed);
}

void Doorbells::wake(int index, std::uint64_t word) {
  const auto i = static_cast<std::size_t>(index);
  const std::uint64_t one = 1;
  // EAGAIN means that the counter is full, so the sleeper wakes anyway. Nothing else can fail on this eventfd.
  [[maybe_unused]] const ssize_t written = ::write(event_fds_[i], &one, sizeof one);
  lines_[i]->word.compare_exchange_strong(word, word + 1, std::memory_order_seq_cst);
}

void Doorbells::send_goodbye() { lines_[static_cast<std::size_t>(self_)]->goodbye.store(1, std::memory_order_seq_cst); }

bool Doorbells::goodbye_sent(int index) const {
  return lines_[static_cast<std::size_t>(index)]->goodbye.load(std::memory_order_seq_cst) != 0;
}

void Doorbells::drain() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_fds_[static_cast<std::size_t>(self_)], &count, sizeof count);
}

}  // namespace distrun::net
