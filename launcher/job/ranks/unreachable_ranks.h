// Ranks whose connection to the rendezvous has ended while they used the runtime. Nearly always the rank has ended, and
// its agent says so soon. Where something runs on, the launcher reports it, because nobody else can. Pure.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"

namespace distrun::launcher {

class UnreachableRanks {
 public:
  // How long the end of a rank may take to be known. The kernel closes connections first, and takes seconds for what a
  // large process has in memory or on a GPU.
  static constexpr Duration kLimit = std::chrono::seconds(5);

  void disconnected(int rank, std::string text, TimePoint now) { ranks_[rank] = {std::move(text), now + kLimit}; }
  // It has ended, alone or with its host, or is connected again.
  void explained(int rank) { ranks_.erase(rank); }

  // Those that run on, with the text for the user; each once.
  std::vector<std::pair<int, std::string>> take(TimePoint now) {
    std::vector<std::pair<int, std::string>> out;
    for (auto& [rank, one] : ranks_) {
      if (now >= one.until) out.emplace_back(rank, std::move(one.text));
    }
    for (const auto& [rank, text] : out) ranks_.erase(rank);
    return out;
  }
  [[nodiscard]] std::optional<TimePoint> deadline() const {
    std::optional<TimePoint> next;
    for (const auto& [rank, one] : ranks_) next = next ? std::min(*next, one.until) : one.until;
    return next;
  }

 private:
  struct One {
    std::string text;
    TimePoint until;
  };
  std::map<int, One> ranks_;
};

}  // namespace distrun::launcher
