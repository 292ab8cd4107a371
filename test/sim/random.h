// Seeded random choices. They are the same on every machine, unlike the distributions of the standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "runtime/base/clock.h"

namespace distrun::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t below(std::uint64_t bound) { return bound == 0 ? 0 : engine_() % bound; }
  int between(int least, int most) {
    return least + static_cast<int>(below(static_cast<std::uint64_t>(most - least + 1)));
  }
  bool chance(int percent) { return below(100) < static_cast<std::uint64_t>(percent); }
  Duration up_to(Duration most) {
    return Duration(static_cast<Duration::rep>(below(static_cast<std::uint64_t>(most.count()) + 1)));
  }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<std::size_t>(below(from.size()))];
  }
  // An independent stream. Draws of one part therefore do not change the draws of another part.
  Random fork() { return Random(engine_() ^ 0x9E3779B97F4A7C15ULL); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace distrun::sim
