// Finds out which rank is gone, and why. A dead rank's connections end at once, but only the launcher knows the signal,
// and its report takes a moment. So a suspicion waits a short time for the cause before it becomes the verdict that
// ends the job. Pure: no clock, no I/O.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/store/job_channel.h"

namespace distrun::engine {

class FailureDetector {
 public:
  static constexpr Duration kGrace = std::chrono::seconds(1);

  explicit FailureDetector(std::vector<std::string> hosts) : hosts_(std::move(hosts)) {}

  // --- events ---
  void take_event(const net::JobEvent& event, TimePoint now);  // an event from the launcher
  // This rank, `own`, has lost its connection to the launcher. Other ranks may still have theirs, if a network has
  // failed.
  void launcher_gone(const Status& why, int own);
  // This rank's connection to `rank` ended. `sign`: a text such as "its control connection ended".
  void suspect(int rank, const std::string& sign, LinkEnd end, TimePoint now);
  // A member's peer is gone, and the member asks whether the leader is alive. If the leader is silent, the peer may
  // have ended because of that, so the leader is named first. Call forgive() when the leader answers.
  void suspect_silent_leader(int gone, TimePoint now);
  // An operation failed in its backend, and no rank is known as the cause.
  void suspect_operation(const Status& failure, TimePoint now);
  void left(int rank);  // the log says that the rank left in good order
  // Drops the suspicion of a rank. A rank that left may end; it is suspected again only if something here still needs
  // it.
  void drop_suspicion(int rank);

  [[nodiscard]] bool has_left(int rank) const;
  [[nodiscard]] bool suspects(int rank) const;
  // Another rank ends the job with `other`. Returns this rank's own observation, not yet sent, if it says more.
  [[nodiscard]] std::optional<ErrorInfo> knows_better(const ErrorInfo& other) const;
  // The error that ends the job, once it is certain. The first one stays.
  [[nodiscard]] std::optional<ErrorInfo> verdict(TimePoint now) const;
  // When a suspicion becomes the verdict.
  [[nodiscard]] std::optional<TimePoint> deadline() const;

 private:
  struct Suspicion {
    int rank = -1;
    ErrorInfo error;
    TimePoint until;
    bool silent = false;  // the rank only does not answer; the end of its connection would say more
  };
  // Adds the host and whether the rank has left, as far as this rank knows them.
  [[nodiscard]] ErrorInfo lost(net::LostRank rank) const;
  [[nodiscard]] std::string host_of(int rank) const;  // empty: not known
  void suspect_until(Suspicion suspicion);

  std::vector<std::string> hosts_;
  std::vector<bool> left_;  // by rank
  std::optional<ErrorInfo> certain_;
  std::vector<Suspicion> suspicions_;  // oldest first
};

}  // namespace distrun::engine
