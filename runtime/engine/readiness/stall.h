// Texts and limits for ranks that keep others waiting. Pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/readiness/readiness.h"
#include "runtime/net/store/program_state.h"

namespace distrun::engine {

// "waiting for rank 2 (node1), which has not submitted allreduce 'b', allreduce 'c' and 3 more, for 12.0 s; ..."
std::string stall_text(const std::vector<const PendingTensor*>& waiting, const std::vector<std::string>& hosts,
                       TimePoint now);

// The same as values: one wait for all tensors that the same ranks have submitted and the same ranks have not.
std::vector<net::RankWait> waits_of(const std::vector<const PendingTensor*>& waiting);

// Collects tensors that were reported as late and run now, for one line about them.
class Resumed {
 public:
  void add(const PendingTensor& tensor, TimePoint now);
  [[nodiscard]] bool empty() const { return count_ == 0; }
  std::string take_text();  // "allreduce 'b', allreduce 'c' and 3 more went on after 3600.0 s"

 private:
  std::string names_;  // the first few
  std::size_t count_ = 0;
  Duration longest_{};
};

// kTimeout for the tensor that has waited longest. The error names the ranks that it waits for.
ErrorInfo stall_error(const PendingTensor& tensor, const std::vector<std::string>& hosts, TimePoint now);

struct Rivals {
  PendingTensor* tensor = nullptr;
  const PendingTensor* rival = nullptr;
};
// Finds tensors whose submitters seem to mean another tensor, `rival`, by the same name. Both are in one set and have
// the same user's name, but differ in the operation or in the length of their group ("allreduce.k" and "allgather.k",
// "g_1of1" and both of "g_1of2", "g_2of2"). The rival was submitted by all ranks that miss the tensor, and by none that
// has it. Both have waited: the older one for at least `wait_limit`, the younger one for half of it. The result has the
// order of `waiting`, and the oldest rival of each tensor. Names that a counter made are ignored.
std::vector<Rivals> rivals_among(const std::vector<PendingTensor*>& waiting, Duration wait_limit, TimePoint now);
// kMismatch that names both tensors.
Status rival_error(const PendingTensor& tensor, const PendingTensor& rival, const std::vector<std::string>& hosts);

// When a wait is reported again. It began at `since` and was last reported at `reported`. The interval is as long as
// the wait had lasted at that report, so that hours give few lines. It is at least `warning`, and at most ten minutes,
// or `warning` if that is longer.
TimePoint next_warning(TimePoint since, TimePoint reported, Duration warning);

// How long ranks may wait for one another. 0: no limit.
struct StallLimits {
  Duration warning{};
  Duration shutdown{};

  // After this time it is an error that two tensors wait for each other's ranks.
  [[nodiscard]] Duration wait_limit() const;
  // max(): never.
  [[nodiscard]] TimePoint next_report(TimePoint since, TimePoint reported) const;
  [[nodiscard]] bool passed(TimePoint since, TimePoint now) const;
};

// The earliest time at which something that waits must be looked at.
class NextLook {
 public:
  explicit NextLook(const StallLimits& limits) : limits_(limits) {}
  // `since`: when the wait began. `report`: when it is due to be reported.
  void consider(TimePoint since, TimePoint report);
  [[nodiscard]] bool anything_waits() const { return waits_; }
  [[nodiscard]] TimePoint when() const { return when_; }  // max(): never

 private:
  const StallLimits& limits_;
  TimePoint when_ = TimePoint::max();
  bool waits_ = false;
};

// "12.3 s"
std::string seconds_text(Duration duration);

}  // namespace distrun::engine
