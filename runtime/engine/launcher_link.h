// This rank's connection to the launcher. It receives how other ranks end, and reports events that only the ranks know.
// Only the token holder may use this.
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
  // `channel` and `log` may be null. All arguments outlive this.
  LauncherLink(net::JobChannel* channel, net::WaitSet& wait_set, Log* log)
      : channel_(channel), wait_set_(wait_set), log_(log) {}
  ~LauncherLink();
  LauncherLink(const LauncherLink&) = delete;
  LauncherLink& operator=(const LauncherLink&) = delete;

  // Starts to pass the launcher's events to `heard`, which runs inside the wait set's poll(). An error arrives once,
  // and means that the launcher is gone.
  using OnEvents = std::function<void(Result<std::vector<net::JobEvent>>)>;
  Status watch(OnEvents on_events);

  // Reports the end of the job if a rank left while others need it (kRankLeft), or stalls the others (kTimeout). Only
  // the ranks know these two causes; the launcher sees all others itself. The launcher prints the report and sets the
  // exit code.
  void report_end(const Status& why, bool deadlock = false);
  void report_failure(const std::string& cause, const std::string& tensor);  // a failure of this rank; never throws
  // This rank, `own`, ends its session because of the ranks in `why`. `heard`: another rank has reported this, and this
  // rank has noticed nothing itself. Does nothing if the failure is this rank's own.
  void report_loss(const Status& why, int own, bool by_other);
  // The same for a failed operation of a library. The cause may be a rank that the error does not name.
  void report_operation(const Status& why);
  // An operation makes no progress. `tensor`: its tensor, if it has one.
  void report_no_progress(const std::string& what, const std::string& tensor);
  // Reports long waits for the first time. An empty list: the waits are over.
  void report_waits(std::vector<net::RankWait> waits);
  void report_state(const net::ProgramState& state);  // any thread; answers kStacksAsked
  void report_stop(const std::string& cause);         // leader only: the ranks have agreed where to stop

 private:
  void unwatch();
  void note(const Status& reported) const;

  net::JobChannel* channel_;
  net::WaitSet& wait_set_;
  Log* log_;
  bool watched_ = false;
};

}  // namespace distrun::engine
