// Whether chunks are written to the window through the cache or past it. Neither is always right: through the cache a
// peer imports modified lines from the writer's core, which between two hyperthreads is nearly free and between distant
// cores five times slower than reading memory; and virtual machines move. So both are tried now and then on a few
// chunks of running all-reduces, in turns that the chunks' numbers fix (all members try alike), and the cheaper is
// kept.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace distrun::backend::shm {

class StoreChoice {
 public:
  static constexpr std::uint64_t kGroup = 4;      // chunks in a row with the same kind of store: once around the window
  static constexpr std::uint64_t kTrial = 32;     // chunks of a trial
  static constexpr std::uint64_t kPeriod = 4096;  // chunks from one trial to the next

  // `n` counts the chunks of all-reduces.
  [[nodiscard]] bool streams(std::uint64_t n) const { return in_trial(n) ? (n / kGroup) % 2 == 1 : streaming_; }
  [[nodiscard]] static bool in_trial(std::uint64_t n) { return n % kPeriod < kTrial; }
  // Outside all-reduces.
  [[nodiscard]] bool streams() const { return streaming_; }

  // What a stage of a chunk of the trial cost, without waiting; `bytes` where it is the first stage, then 0.
  void add(std::uint64_t n, std::size_t bytes, double seconds);
  // After the last stage of a chunk; decides at the end of the trial.
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
  // Until known: streaming loses less where it is the wrong choice.
  bool streaming_ = true;
};

}  // namespace distrun::backend::shm
