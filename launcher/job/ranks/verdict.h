// The head's decisions about a job: what is a failure, which rank is the first cause, what is published to the ranks,
// when ranks are ended, and the exit code. Pure: takes events, returns actions.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/exit_codes.h"
#include "launcher/job/ranks/blame.h"
#include "launcher/job/ranks/exit_order.h"
#include "launcher/job/ranks/interrupts.h"
#include "launcher/job/ranks/sessions.h"
#include "launcher/protocol/messages.h"
#include "launcher/report/failure_report.h"
#include "runtime/base/clock.h"
#include "runtime/net/store/job_channel.h"

namespace distrun::launcher {

// The actions that are due now. `stop` is sent to every agent.
struct JobActions {
  std::optional<net::JobEvent> publish;
  std::optional<Stop> stop;
  bool interrupt_ranks = false;      // SIGINT for every rank
  std::vector<int> interrupt_again;  // SIGINT for ranks that have lost the first one
  std::vector<int> end_ranks;        // servers that must end, without a failure
  bool failure_known = false;        // the first cause has just become known
};

class Verdict {
 public:
  struct Config {
    std::vector<std::string> hosts;  // by rank
    std::vector<int> host_of;        // by rank
    double grace = 10;
    // `servers` serve other ranks until all `clients` have ended. Then the job ends the servers, which is no failure.
    std::set<int> servers;
    std::set<int> clients;
  };
  explicit Verdict(Config config);

  void started(const RankStarted& event);
  JobActions joined(int rank);                                     // connected to the rendezvous: it uses the runtime
  JobActions left(int rank);                                       // ended its session normally
  JobActions reported(int rank, const net::RankFailure& failure);  // reports that it ends because of an uncaught error
  JobActions left_early(int rank, const net::RankFailure& failure);  // the ranks' leader reports this
  // Its connection to the rendezvous has ended during its session; `round` as in ExitOrder.
  void disconnected(int rank, std::uint64_t round);
  JobActions runs_on(int rank);  // it still runs after disconnected()
  void misses(int rank);         // its session has ended because it misses another rank; blame() follows
  // The rank, host or network to blame for misses(), if known.
  JobActions blame(const std::optional<Blame>& found);
  JobActions exited(const RankExited& event, std::uint64_t round = 0);
  // The launcher got SIGINT, SIGTERM or SIGHUP.
  JobActions interrupted(int signal, TimePoint now);
  JobActions timed_out(const std::string& why = "");  // as in Cause
  JobActions reader_gone();
  // All ranks of these hosts are gone with them. A host is an index as in `Config::host_of`. It is called again when
  // more is known about the cause. kCarrierLost: the carrier of these hosts is gone (--mpi); then no hosts means all of
  // them.
  JobActions hosts_lost(const std::vector<int>& hosts, const Cause& cause);
  // The job cannot continue for a reason outside the ranks: an agent refused, or an agent is lost.
  JobActions broken(int code, const std::string& why);

  [[nodiscard]] int exit_code() const;
  // The first cause, once there is one. Facts that only the end of the job tells are missing.
  [[nodiscard]] const std::optional<FailureReport>& failure() const { return failure_; }
  // True if the first cause is a rank.
  [[nodiscard]] bool rank_failed() const { return failure_ && failure_->rank >= 0; }
  // How each rank ended, by rank; absent while it runs.
  [[nodiscard]] const std::optional<RankExited>& end_of(int rank) const;
  [[nodiscard]] bool ending() const { return ending_; }
  [[nodiscard]] std::vector<int> servers_left() const;  // that still run
  // True if it was interrupted again while it was ending. The job must then end now.
  [[nodiscard]] bool interrupted_again() const { return interrupts_.repeated(); }
  [[nodiscard]] const Sessions& sessions() const { return sessions_; }
  // The pid of the process that was started for it.
  [[nodiscard]] int pid_of(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)).pid; }

 private:
  struct Rank {
    int pid = 0;
    std::optional<RankExited> end;
  };
  Rank& at(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] bool known(int rank) const { return rank >= 0 && static_cast<std::size_t>(rank) < ranks_.size(); }
  JobActions fail(int rank, Cause cause, const net::RankFailure& reported = {});
  JobActions fail_by_exit(const RankExited& event);
  JobActions end_by(Cause cause, int code);
  JobActions judge_held();
  JobActions look_for_early_leaver();
  void end_servers(JobActions& out);
  [[nodiscard]] Stop stop_after_failure() const;
  [[nodiscard]] std::uint32_t grace_ms() const;
  [[nodiscard]] int code_of_failure() const;

  Config config_;
  std::vector<Rank> ranks_;
  Sessions sessions_;
  ExitOrder order_;
  std::optional<FailureReport> failure_;  // its exit code is set if no rank gives it
  bool ending_ = false;
  bool loss_published_ = false;  // ranks use only the first one
  bool servers_ended_ = false;
  Interrupts interrupts_;
};

}  // namespace distrun::launcher
