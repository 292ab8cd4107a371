// The messages between a rank and its launcher while the job runs. They share the connection of the store.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/link_end.h"
#include "runtime/base/status.h"
#include "runtime/net/store/program_state.h"

namespace distrun::net {

// The launcher pushes this to every rank. It sends at most one failure per rank; the first one is the first cause.
struct JobEvent {
  // kHostsFailed: hosts, or the network to them, have failed. `cause` is a whole sentence, and `rank` is one of the
  // ranks that cannot be reached. kRankRaised: the rank itself has given `cause`.
  enum class Kind { kRankFailed, kRankLeft, kStopAsked, kStacksAsked, kHostsFailed, kRankRaised };
  Kind kind = Kind::kRankFailed;
  int rank = -1;   // world rank; -1 for kStopAsked and kStacksAsked
  int signal = 0;  // the signal that killed it, or 0
  int exit_code = 0;
  std::string host;
  std::string cause;                 // "killed by signal 9 (SIGKILL)", "ValueError: ...", "exited with code 3"
  bool explained_by_output = false;  // the rank has written text, which may say why it ended
};

// Why a rank ends the job. Its peers get the cause; the launcher gets all fields.
struct RankFailure {
  std::string cause;
  std::string tensor;  // of the operation that failed or waits; empty: none, or unknown
  CodePlace place;
};

// The peers that a rank has lost or waits for, as far as it knows.
struct MissedPeers {
  std::vector<int> ranks;            // none: an operation of a library failed, and its error names no rank
  LinkEnd link = LinkEnd::kUnknown;  // how the connection to them ended
  bool by_other = false;             // another rank has reported it
  bool deadlock = false;             // all ranks wait for one another, so none of them is the cause alone
};

// A rank that is gone, for the error of the other ranks.
struct LostRank {
  int rank = -1;
  std::string host;  // empty: not known
  std::string cause;
  bool left = false;  // it left in good order, but too early
  bool explained_by_output = false;
};
ErrorInfo loss_of(const LostRank& lost);
// The error's text if a rank has ended the job by an exception, or by abort(). All ranks get the same one.
std::string raised_text(int rank, const std::string& host, const std::string& cause);
// The error for the other ranks.
ErrorInfo raised_by(int rank, const std::string& host, const std::string& cause);
// The error for the other ranks if hosts, or the network to them, have failed. `rank` is one that cannot be reached.
ErrorInfo hosts_failed(int rank, const std::string& host, const std::string& cause);
// The error that ends a wait for other ranks when the event arrives; OK if the event does not end the job.
Status end_of_job(const JobEvent& event);

// The wait set watches fd(). When it is readable, the holder of the progress token calls receive(); no other thread may
// call that. Sending is safe from any thread.
class JobChannel {
 public:
  virtual ~JobChannel() = default;
  [[nodiscard]] virtual int fd() const = 0;
  // Never blocks. An error means that the launcher is gone. After it was returned, fd() is not readable any more.
  virtual Result<std::vector<JobEvent>> receive() = 0;
  // This rank leaves in good order: its exit with code 0 is not a failure.
  virtual Status leave() = 0;
  // This rank ends because of an uncaught exception or a failed allocation. Peers get the cause at once.
  virtual Status report_failure(const RankFailure& failure) = 0;
  // Leader only: `rank` left in good order while other ranks still need it. That ends the job.
  virtual Status report_early_leave(int rank, const RankFailure& failure) = 0;
  // Other ranks have waited for these ranks for longer than allowed. That ends the job.
  virtual Status report_stall(const MissedPeers& missed, const RankFailure& failure) = 0;
  // This rank's session has ended because it misses these peers, so its own end is a consequence. `failure` says how.
  virtual Status report_loss(const MissedPeers& missed, const RankFailure& failure) = 0;
  // An operation of this rank makes no progress, but nothing has ended. Asks if the hosts still reach each other.
  virtual Status report_no_progress(const RankFailure& failure) = 0;
  // Leader only: the ranks have agreed to stop.
  virtual Status report_stop(const std::string& cause) = 0;
  // Ranks have waited for others for a long time. Sent when such waits are first reported. An empty list means that
  // they are over.
  virtual Status report_waits(const std::vector<RankWait>& waits) = 0;
  // The answer to kStacksAsked.
  virtual Status report_state(const ProgramState& state) = 0;
};

}  // namespace distrun::net
