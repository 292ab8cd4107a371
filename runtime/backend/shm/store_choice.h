// Decides whether chunks are written to the window through the cache or past it. Neither is always better. Through the
// cache, a peer must fetch modified lines from the writer's core. That is nearly free between two hyperthreads. Between
// distant cores it is five times slower than reading memory, and virtual machines may move. So both are tried from time
// to time on a few chunks of running all-reduces, and the faster one is kept. The chunks' numbers determine the trials,
// so that all members try the same kind at the same time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace distrun::backend::shm {

class StoreChoice {
 public:
  static constexpr std::uint64_t kGroup = 4;  // consecutive chunks with the same kind of store: one round of the window
  static constexpr std::uint64_t kTrial = 32;     // chunks of a trial
  static constexpr std::uint64_t kPeriod = 4096;  // chunks from the start of one trial to the next

  // `n` is the chunk's number among the chunks of all-reduces.
  [[nodiscard]] bool streams(std::uint64_t n) const { return in_trial(n) ? (n / kGroup) % 2 == 1 : streaming_; }
  [[nodiscard]] static bool in_trial(std::uint64_t n) { return n % kPeriod < kTrial; }
  // For operations that are not all-reduces.
  [[nodiscard]] bool streams() const { return streaming_; }

  // The time of one stage of a chunk of the trial, without waiting. `bytes` is the chunk's size in the first stage and
  // 0 in later ones.
  void add(std::uint64_t n, std::size_t bytes, double seconds);
  // Call this after the last stage of a chunk. It decides at the end of a trial.
  void finished(std::uint64_t n) {
    if (n % kPeriod == kTrial - 1) decide();
  }

 private:
  struct Cost {
    double seconds = 0;
    double bytes = 0;
  };
  void decide();

  std::array<Cost, kTrial / kGroup> groups_ = {};
  // Before the first trial: streaming, because it loses less if it is the wrong choice.
  bool streaming_ = true;
};

}  // namespace distrun::backend::shm
