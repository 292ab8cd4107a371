// Who is gone, and why. Connections end at once when a rank dies, but only the launcher knows the signal and it takes
// a moment: so a suspicion waits a short time for the cause before it becomes the verdict that ends the job. Pure.
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
  void heard(const net::JobEvent& event, TimePoint now);  // from the launcher
  // Of the rank `own`, this one: the others may have theirs, where a network has failed.
  void launcher_gone(const Status& why, int own);
  // This rank's connection to `rank` ended: "its control connection ended".
  void suspect(int rank, const std::string& sign, LinkEnd end, TimePoint now);
  // A member's peer has gone, and the leader is asked whether it is there: where it is silent, that may be why the peer
  // ended, and it is named first. forgive() when it answers.
  void suspect_silent_leader(int gone, TimePoint now);
  // An operation failed in its backend, and no rank is known to be the reason.
  void suspect_operation(const Status& failure, TimePoint now);
  void left(int rank);  // in good order, and told so by the log
  // A rank that left may go; it is missed only while something here still needs it.
  void forgive(int rank);

  [[nodiscard]] bool has_left(int rank) const;
  [[nodiscard]] bool suspects(int rank) const;
  // Another rank ends the job with `other`. What this rank has seen itself and has not told, if that says more.
  [[nodiscard]] std::optional<ErrorInfo> knows_better(const ErrorInfo& other) const;
  // The error that ends the job, once it is certain; the first one stays.
  [[nodiscard]] std::optional<ErrorInfo> verdict(TimePoint now) const;
  // When a suspicion becomes the verdict.
  [[nodiscard]] std::optional<TimePoint> deadline() const;

 private:
  struct Suspicion {
    int rank = -1;
    ErrorInfo error;
    TimePoint until;
    bool silent = false;  // only that; the end of its connection says more
  };
  [[nodiscard]] ErrorInfo lost(int rank, const std::string& host, const std::string& cause) const;
  [[nodiscard]] std::string host_of(int rank) const;  // empty: not known
  void suspect_until(Suspicion suspicion);

  std::vector<std::string> hosts_;
  std::vector<bool> left_;  // by rank
  std::optional<ErrorInfo> certain_;
  std::vector<Suspicion> suspicions_;  // oldest first
};

}  // namespace distrun::engine
