// Collective calls (process sets, timeline): the k-th call of every rank is one call, and must be the same. Pure.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/messages.h"

namespace distrun::engine {

class CallBoard {
 public:
  explicit CallBoard(int world_size) : queued_(static_cast<std::size_t>(world_size)) {}

  // `refused`: this rank could not do its part, which makes it everybody's outcome.
  void add(int rank, Call call, TimePoint now, const Status& refused = {});
  // The oldest call, once every rank has made it: the call, or kMismatch naming the odd ranks, or what refused it.
  std::optional<Result<Call>> take(const std::vector<std::string>& hosts);

  [[nodiscard]] bool empty() const { return waiting_ == 0; }
  // Of the oldest call, if some rank has made it and some have not.
  struct Waiting {
    std::string what;
    std::vector<int> missing;
    TimePoint since;
  };
  [[nodiscard]] std::optional<Waiting> waiting() const;

 private:
  struct Queued {
    Call call;
    TimePoint when;
    Status refused;
  };
  std::vector<std::deque<Queued>> queued_;  // by rank
  std::size_t waiting_ = 0;                 // ranks with something queued
};

std::string describe(const Call& call);  // "adding a process set of ranks 0, 1"

}  // namespace distrun::engine
