// Ranks whose connection to the rendezvous has ended while they used the runtime. Nearly always the rank has ended, and
// its agent reports this soon. If the rank still runs, the launcher reports it, because no other process can. Pure.
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
  // How long to wait for the news that the rank has ended. The kernel closes connections first, and then takes seconds
  // to free the memory of a large process or of a GPU.
  static constexpr Duration kLimit = std::chrono::seconds(5);

  void disconnected(int rank, std::string text, TimePoint now) { ranks_[rank] = {std::move(text), now + kLimit}; }
  // The rank has ended, alone or with its host, or has connected again.
  void explained(int rank) { ranks_.erase(rank); }

  // The ranks that still run, with the text for the user. Each is returned once.
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
