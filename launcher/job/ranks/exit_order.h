// Which of several ranks that end together failed first. A connection to the rendezvous ends before its process is
// gone, so a rank whose connection ended first may be the cause of another one's exit that is known sooner. A head that
// was not run for a while sees several ends at once: then what the ranks said before tells. Pure.
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

  // Its connection ended in its session. `round` counts up; ends that are seen in one have no order.
  void disconnected(int rank, std::uint64_t round) {
    at(rank).seen_in = round;
    at(rank).exit_awaited = true;
  }
  // It says that its session has ended because it misses another rank. Its end is no cause before it is known who is
  // to blame for that.
  void misses(int rank) { at(rank).misses = true; }
  [[nodiscard]] bool is_missing(int rank) const { return ranks_[static_cast<std::size_t>(rank)].misses; }
  // Nobody is.
  void no_cause_found() {
    for (Rank& rank : ranks_) rank.misses = false;
  }
  // Its exit is not awaited any more: it runs on.
  void runs_on(int rank) { at(rank).exit_awaited = false; }
  void exited(int rank, std::uint64_t round) {
    if (!std::exchange(at(rank).exit_awaited, false)) at(rank).seen_in = round;
  }

  // The exit of this rank may follow from that of another one, which is awaited, or from what it misses.
  [[nodiscard]] bool may_follow(int rank) const {
    const Rank& own = ranks_[static_cast<std::size_t>(rank)];
    return own.misses || std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& other) {
             return other.exit_awaited && other.seen_in < own.seen_in;
           });
  }
  // A failure that may follow from another one is kept until that is known.
  void hold(const RankExited& event) { held_.push_back(event); }
  [[nodiscard]] bool holds_any() const { return !held_.empty(); }
  // The first of the kept ones that follows from no other.
  [[nodiscard]] std::optional<RankExited> first_cause() const {
    const auto first =
        std::find_if(held_.begin(), held_.end(), [this](const RankExited& event) { return !may_follow(event.rank); });
    return first == held_.end() ? std::nullopt : std::optional(*first);
  }

 private:
  struct Rank {
    std::uint64_t seen_in = 0;  // the round in which its end, or that of its connection, was seen
    bool exit_awaited = false;
    bool misses = false;
  };
  Rank& at(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }

  std::vector<Rank> ranks_;
  std::vector<RankExited> held_;
};

}  // namespace distrun::launcher
