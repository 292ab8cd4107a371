// The texts that name who keeps the others waiting. Pure.
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

// The same as values: one for all tensors that have been submitted by the same ranks and miss the same ranks.
std::vector<net::RankWait> waits_of(const std::vector<const PendingTensor*>& waiting);

// Tensors that were reported as late and run now, until one line says so.
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

// kTimeout for the tensor that has waited longest, naming the ranks it waits for.
ErrorInfo stall_error(const PendingTensor& tensor, const std::vector<std::string>& hosts, TimePoint now);

struct Rivals {
  PendingTensor* tensor = nullptr;
  const PendingTensor* rival = nullptr;
};
// The tensors whose submitters seem to mean something else by the same: another tensor of the set has the same user's
// name, but is another operation or of a group of another length ("allreduce.k" and "allgather.k", "g_1of1" and both of
// "g_1of2", "g_2of2"), and was submitted by all ranks that miss the tensor and by none that has it. They have waited
// for as long as `patience`, the side that began later for half of it. In the order of `waiting`, each with its oldest
// rival. Names that a counter made say nothing.
std::vector<Rivals> rivals_among(const std::vector<PendingTensor*>& waiting, Duration patience, TimePoint now);
// kMismatch that names both.
Status rival_error(const PendingTensor& tensor, const PendingTensor& rival, const std::vector<std::string>& hosts);

// When something that has lasted since `since` and was reported at `reported` is reported again: after as long again,
// so that hours are few lines, but after `warning` at the soonest, and after ten minutes, or `warning` if that is more,
// at the latest.
TimePoint next_warning(TimePoint since, TimePoint reported, Duration warning);

// How long ranks may wait for one another. 0: no limit.
struct StallLimits {
  Duration warning{};
  Duration shutdown{};

  // Until it is an error that they wait for each other crosswise.
  [[nodiscard]] Duration patience() const;
  // max(): never.
  [[nodiscard]] TimePoint next_report(TimePoint since, TimePoint reported) const;
  [[nodiscard]] bool passed(TimePoint since, TimePoint now) const;
};

// The first moment at which something that waits is due for a look.
class NextLook {
 public:
  explicit NextLook(const StallLimits& limits) : limits_(limits) {}
  // `since`: when it began to wait; `report`: when it is reported.
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
