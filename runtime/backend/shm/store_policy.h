// Decides how each chunk of each operation is written. It has one StoreChoice for small chunks and one for large ones.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "runtime/backend/shm/store_choice.h"
#include "runtime/backend/shm/transfer.h"
#include "runtime/base/clock.h"

namespace distrun::backend::shm {

class StorePolicy {
 public:
  // Call this before the transfer's first chunk, in the order of the operations, which is the same on all members.
  void admit(WindowTransfer& transfer);

  // Whether chunk `k` is written past the cache.
  [[nodiscard]] bool streams(const WindowTransfer& transfer, std::uint64_t k) const {
    if (transfer.stores < 0) return false;
    const StoreChoice& choice = choices_[static_cast<std::size_t>(transfer.stores)];
    return transfer.reduces() ? choice.streams(transfer.first_tried + k) : choice.streams();
  }

  // Runs a stage of chunk `k`, and measures its time during a trial. `bytes` is the chunk's size in the first stage and
  // 0 in later ones.
  template <class Work>
  void timed(const WindowTransfer& transfer, std::uint64_t k, std::size_t bytes, Work&& work) {
    if (transfer.stores < 0 || !transfer.reduces() || !StoreChoice::in_trial(transfer.first_tried + k)) {
      work();
      return;
    }
    const TimePoint start = Clock::now();
    work();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    choices_[static_cast<std::size_t>(transfer.stores)].add(transfer.first_tried + k, bytes, seconds);
  }

  // Call this after the last stage of chunk `k`.
  void finished(const WindowTransfer& transfer, std::uint64_t k) {
    if (!transfer.reduces() || transfer.stores < 0) return;
    choices_[static_cast<std::size_t>(transfer.stores)].finished(transfer.first_tried + k);
  }

 private:
  std::array<StoreChoice, 2> choices_;
  std::array<std::uint64_t, 2> next_tried_ = {};
};

}  // namespace distrun::backend::shm
