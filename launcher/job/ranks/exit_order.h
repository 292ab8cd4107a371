// Which of several ranks that end together failed first. A rank's connection to the rendezvous ends before its process
// is gone. So a rank whose connection ended first may be the cause of another rank's exit that is known earlier. If the
// head did not run for a while, it sees several ends at once. Then the earlier messages of the ranks decide. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/protocol/messages.h"

namespace distrun::launcher {

class ExitOrder {
 public:
  explicit ExitOrder(std::size_t ranks) : ranks_(ranks) {}

  // The connection of a rank ended during its session. `round` counts up; ends in the same round have no order.
  void disconnected(int rank, std::uint64_t round) {
    at(rank).seen_in = round;
    at(rank).exit_awaited = true;
  }
  // The rank reports that its session has ended because it misses another rank. Its end is not a cause until it is
  // known who is to blame.
  void misses(int rank) { at(rank).misses = true; }
  [[nodiscard]] bool is_missing(int rank) const { return ranks_[static_cast<std::size_t>(rank)].misses; }
  // No rank is to blame for the missed ranks.
  void no_cause_found() {
    for (Rank& rank : ranks_) rank.misses = false;
  }
  // The rank still runs, so its exit is not awaited any more.
  void runs_on(int rank) { at(rank).exit_awaited = false; }
  void exited(int rank, std::uint64_t round) {
    if (!std::exchange(at(rank).exit_awaited, false)) at(rank).seen_in = round;
  }

  // True if the exit of this rank may follow from another one that is awaited, or from the rank that it misses.
  [[nodiscard]] bool may_follow(int rank) const {
    const Rank& own = ranks_[static_cast<std::size_t>(rank)];
    return own.misses || std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& other) {
             return other.exit_awaited && other.seen_in < own.seen_in;
           });
  }
  // Keeps a failure that may follow from another one, until this is known.
  void hold(const RankExited& event) { held_.push_back(event); }
  [[nodiscard]] bool holds_any() const { return !held_.empty(); }
  // The first kept failure that follows from no other.
  [[nodiscard]] std::optional<RankExited> first_cause() const {
    const auto first =
        std::find_if(held_.begin(), held_.end(), [this](const RankExited& event) { return !may_follow(event.rank); });
    return first == held_.end() ? std::nullopt : std::optional(*first);
  }

 private:
  struct Rank {
    std::uint64_t seen_in = 0;  // the round in which its end, or its connection's, was seen
    bool exit_awaited = false;
    bool misses = false;
  };
  Rank& at(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }

  std::vector<Rank> ranks_;
  std::vector<RankExited> held_;
};

}  // namespace distrun::launcher
