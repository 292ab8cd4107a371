// What a rank and its launcher tell each other while the job runs. Over the wire it shares the store's connection.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/link_end.h"
#include "runtime/base/status.h"
#include "runtime/net/store/program_state.h"

namespace distrun::net {

// Pushed by the launcher to every rank. Of failures at most one per rank concerned; the first one is the first cause.
struct JobEvent {
  enum class Kind { kRankFailed, kRankLeft, kStopAsked, kStacksAsked };
  Kind kind = Kind::kRankFailed;
  int rank = -1;   // world rank; -1 for kStopAsked and kStacksAsked
  int signal = 0;  // the signal that killed it, or 0
  int exit_code = 0;
  std::string host;
  std::string cause;  // "killed by signal 9 (SIGKILL)", "ValueError: ...", "exited with code 3"
};

// Why a rank ends the job. Its peers hear the cause, the launcher all of it.
struct RankFailure {
  std::string cause;
  std::string tensor;  // of the operation that failed or waits; empty: none, or not known
  CodePlace place;
};

// The peers that a rank misses, as far as it can tell.
struct MissedPeers {
  std::vector<int> ranks;            // none: an operation of a library failed, and its error names no rank
  LinkEnd link = LinkEnd::kUnknown;  // how the connection to them ended
  bool heard = false;                // another rank has said so
};

// The news for the others of a rank that is gone: dead, or, having `left` in good order, missed.
ErrorInfo loss_of(int rank, const std::string& host, const std::string& cause, bool left);
// How a wait for other ranks ends when the event comes; OK if it does not end the job.
Status end_of_job(const JobEvent& event);

// The wait set watches fd(); the progress-token holder calls receive() when it is readable.
// Sending is safe from any thread; receive() is for the token holder only.
class JobChannel {
 public:
  virtual ~JobChannel() = default;
  [[nodiscard]] virtual int fd() const = 0;
  // Never blocks. An error means that the launcher is gone; fd() is not readable any more after it was returned.
  virtual Result<std::vector<JobEvent>> receive() = 0;
  // This rank leaves in good order: its exit with code 0 is no failure.
  virtual Status leave() = 0;
  // This rank ends, because of an uncaught exception or a failed allocation. Peers see the cause at once.
  virtual Status report_failure(const RankFailure& failure) = 0;
  // The leader: `rank` left in good order while others still need it, and the job ends because of that.
  virtual Status report_early_leave(int rank, const RankFailure& failure) = 0;
  // These ranks hold the others up for longer than they may wait, and the job ends because of that.
  virtual Status report_stall(const std::vector<int>& ranks, const RankFailure& failure) = 0;
  // This rank's session has ended because it misses these, so its own end follows from that. `failure` says how.
  virtual Status report_loss(const MissedPeers& missed, const RankFailure& failure) = 0;
  // An operation of this rank makes no progress. Nothing has ended; do the hosts still reach each other?
  virtual Status report_no_progress(const RankFailure& failure) = 0;
  // The leader: the ranks have agreed to stop.
  virtual Status report_stop(const std::string& cause) = 0;
  // Ranks wait for others for long, which is told for the first time; none: nobody waits so any more.
  virtual Status report_waits(const std::vector<RankWait>& waits) = 0;
  // The answer to kStacksAsked.
  virtual Status report_state(const ProgramState& state) = 0;
};

}  // namespace distrun::net
