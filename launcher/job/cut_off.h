// Ranks whose connection to the rendezvous has ended while they used the runtime. Nearly always that is their end, and
// the news of it is on its way; one that runs on has lost the network to here, which nobody else can tell. Pure.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"

namespace distrun::launcher {

class CutOff {
 public:
  static constexpr Duration kNews = std::chrono::seconds(1);  // come within

  void disconnected(int rank, std::string how, TimePoint now) { ranks_[rank] = {std::move(how), now + kNews}; }
  // It has ended, or is connected again.
  void explained(int rank) { ranks_.erase(rank); }

  // Those that run on, and how their connections ended; each is told once.
  std::vector<std::pair<int, std::string>> take(TimePoint now) {
    std::vector<std::pair<int, std::string>> out;
    for (auto& [rank, one] : ranks_) {
      if (now >= one.until) out.emplace_back(rank, std::move(one.how));
    }
    for (const auto& [rank, how] : out) ranks_.erase(rank);
    return out;
  }
  [[nodiscard]] std::optional<TimePoint> deadline() const {
    std::optional<TimePoint> next;
    for (const auto& [rank, one] : ranks_) next = next ? std::min(*next, one.until) : one.until;
    return next;
  }

 private:
  struct One {
    std::string how;
    TimePoint until;
  };
  std::map<int, One> ranks_;
};

}  // namespace distrun::launcher
