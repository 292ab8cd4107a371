// How often each rank has joined and left a session of the job: which ranks use the runtime now, which are still
// needed, and which wait in init(). Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace distrun::launcher {

class Sessions {
 public:
  explicit Sessions(std::size_t ranks) : ranks_(ranks) {}

  void joined(int rank) { ++at(rank).joins; }  // it has called init()
  void left(int rank) { at(rank).leaves = at(rank).joins; }
  void ended(int rank) { at(rank).ended = true; }  // its process

  [[nodiscard]] int joins(int rank) const { return at(rank).joins; }  // how often it has called init()
  [[nodiscard]] bool has_left(int rank) const { return at(rank).leaves == at(rank).joins; }
  [[nodiscard]] bool has(int rank) const { return at(rank).in_session(); }
  [[nodiscard]] bool had(int rank) const { return at(rank).joins > 0; }  // also one that it has left
  [[nodiscard]] bool any() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.in_session(); });
  }
  // The number of the latest session that some rank is in; 0: none is in a session.
  [[nodiscard]] int latest() const {
    int out = 0;
    for (const Rank& rank : ranks_) {
      if (rank.in_session()) out = std::max(out, rank.joins);
    }
    return out;
  }
  // The session `latest`, which is not 0, needs this rank: it never joined that session, or joined it and did not
  // leave.
  [[nodiscard]] bool needs(int rank, int latest) const {
    return at(rank).joins > at(rank).leaves || at(rank).joins < latest;
  }
  // The ranks that this one waits for in init(), because a session begins when all have joined it. Empty: the rank has
  // been through init(), or has not called it.
  [[nodiscard]] std::vector<int> awaited_by(int rank) const {
    std::vector<int> out;
    for (std::size_t i = 0; i < ranks_.size() && has(rank); ++i) {
      if (ranks_[i].joins < at(rank).joins) out.push_back(static_cast<int>(i));
    }
    return out;
  }

 private:
  struct Rank {
    int joins = 0;
    int leaves = 0;
    bool ended = false;
    [[nodiscard]] bool in_session() const { return joins > leaves && !ended; }
  };
  Rank& at(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] const Rank& at(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)); }

  std::vector<Rank> ranks_;
};

}  // namespace distrun::launcher
