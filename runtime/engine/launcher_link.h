// This rank's connection to the launcher: hears how other ranks end, and reports what only the ranks know. Token
// holder.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/net/bytes/wait_set.h"
#include "runtime/net/store/job_channel.h"

namespace distrun {
class Log;
}

namespace distrun::engine {

class LauncherLink {
 public:
  // `channel` and `log` may be null: there is none. All outlive this.
  LauncherLink(net::JobChannel* channel, net::WaitSet& wait_set, Log* log)
      : channel_(channel), wait_set_(wait_set), log_(log) {}
  ~LauncherLink();
  LauncherLink(const LauncherLink&) = delete;
  LauncherLink& operator=(const LauncherLink&) = delete;

  // From now on what the launcher says is handed to `heard`, inside of the wait set's poll(). An error, which comes
  // once, says that the launcher is gone.
  using Heard = std::function<void(Result<std::vector<net::JobEvent>>)>;
  Status watch(Heard heard);

  // The job ends because a rank left that is still needed, or holds the others up: only the ranks know that. The
  // report and the exit code are the launcher's. Anything else it knows.
  void report_end(const Status& why);
  void report_failure(const std::string& cause, const std::string& tensor);  // of this rank; never throws
  // This rank, `own`, ends its session because of the ranks in `why`. `heard`: from a rank, where this one has seen
  // nothing itself. Nothing is said of a failure of its own.
  void report_loss(const Status& why, int own, bool heard);
  // The same for an operation of a library that has failed, perhaps because of a rank that its error does not name.
  void report_operation(const Status& why);
  void report_no_progress(const std::string& what);  // of an operation
  // Of long waits, for the first time; none: they are over.
  void report_waits(std::vector<net::RankWait> waits);
  void report_state(const net::ProgramState& state);  // any thread; the answer to kStacksAsked
  void report_stop(const std::string& cause);         // the leader: the ranks have agreed where to stop

 private:
  void unwatch();
  void note(const Status& reported) const;

  net::JobChannel* channel_;
  net::WaitSet& wait_set_;
  Log* log_;
  bool watched_ = false;
};

}  // namespace distrun::engine
