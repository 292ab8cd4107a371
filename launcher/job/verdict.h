// The head's judgement over a job: what counts as failure, who is the first cause, who is told, when ranks are ended,
// and the exit code. Pure: events in, actions out.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/exit_codes.h"
#include "launcher/protocol/messages.h"
#include "runtime/base/clock.h"
#include "runtime/net/store/job_channel.h"

namespace distrun::launcher {

// What is to be done now. `stop` goes to every agent.
struct JobActions {
  std::optional<net::JobEvent> publish;
  std::optional<Stop> stop;
  bool interrupt_ranks = false;  // SIGINT for every rank
  std::vector<int> end_ranks;    // servers: end these; nothing is wrong
  bool failure_known = false;    // the first cause has just become known
};

class Verdict {
 public:
  struct Config {
    std::vector<std::string> hosts;  // by rank
    std::vector<int> host_of;        // by rank
    double grace = 10;
    // Ranks that serve the others until all `clients` have ended. Then they are ended, which is no failure.
    std::set<int> servers;
    std::set<int> clients;
  };
  explicit Verdict(Config config);

  void started(const RankStarted& event);
  JobActions joined(int rank);                                // came to the rendezvous: it uses the runtime
  JobActions left(int rank);                                  // shut its session down in good order
  JobActions reported(int rank, const std::string& cause);    // says that it ends because of an uncaught error
  JobActions left_early(int rank, const std::string& cause);  // the ranks' leader says so
  JobActions stalled(int rank, const std::string& cause);     // other ranks say that it holds them up
  // Its connection to the rendezvous has ended in its session: perhaps it has too, and takes longer to be gone than
  // those who end because of it. `round` counts up; ends that are seen in one have no order.
  void cut_off(int rank, std::uint64_t round);
  JobActions runs_on(int rank);  // since it was cut off; no news of its end are waited for any more
  JobActions exited(const RankExited& event, std::uint64_t round = 0);
  // SIGINT, SIGTERM, SIGHUP, SIGQUIT to the launcher. One that comes with the first is part of it: who closes a
  // terminal sends several SIGHUPs, a service manager SIGTERM and SIGHUP together. A second Ctrl-C is always meant.
  static constexpr Duration kTogether = std::chrono::seconds(1);
  JobActions interrupted(int signal, TimePoint now);
  JobActions timed_out();
  JobActions reader_gone();
  // All ranks of a host are gone with it. `host` is the index that `Config::host_of` uses.
  JobActions host_lost(int host, const std::string& cause);
  // The job cannot go on for a reason that is no rank's: refused by an agent, agent lost.
  JobActions broken(int code);

  [[nodiscard]] int exit_code() const;
  // The first cause, once there is one.
  struct Failure {
    int rank = -1;
    int pid = 0;
    bool left_early = false;
    std::string cause;
  };
  [[nodiscard]] const std::optional<Failure>& failure() const { return failure_; }
  // How each rank ended, by rank; absent while it runs.
  [[nodiscard]] const std::optional<RankExited>& end_of(int rank) const;
  [[nodiscard]] bool ending() const { return ending_; }
  [[nodiscard]] std::vector<int> servers_left() const;  // that run yet
  // It was interrupted again while it was ending, and is to end now.
  [[nodiscard]] bool insisted() const { return insisted_; }
  [[nodiscard]] bool in_session(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)).in_session(); }
  // The process that was started for it.
  [[nodiscard]] int pid_of(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)).pid; }
  // Some rank uses the runtime now.
  [[nodiscard]] bool any_in_session() const;

 private:
  struct Rank {
    int pid = 0;
    int joins = 0;
    int leaves = 0;
    std::uint64_t seen_in = 0;  // the round in which its end, or that of its connection, was seen
    bool cut_off = false;       // and the news of its own end are waited for
    std::optional<RankExited> end;
    [[nodiscard]] bool in_session() const { return joins > leaves && !end; }
  };
  Rank& at(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] bool known(int rank) const { return rank >= 0 && static_cast<std::size_t>(rank) < ranks_.size(); }
  JobActions fail(int rank, net::JobEvent event);
  JobActions fail_by_exit(const RankExited& event);
  [[nodiscard]] bool waits_for_news(int rank) const;
  JobActions judge_held();
  [[nodiscard]] bool insists(int signal, TimePoint now) const;
  JobActions look_for_early_leaver();
  void end_servers(JobActions& out);
  [[nodiscard]] bool clients_ended() const;
  [[nodiscard]] Stop stop_after_failure() const;
  [[nodiscard]] std::uint32_t grace_ms() const;
  [[nodiscard]] int code_of_failure() const;

  Config config_;
  std::vector<Rank> ranks_;
  std::vector<RankExited> held_;  // failures, until it is known whether one whose connection ended before has failed
  std::optional<Failure> failure_;
  std::optional<int> fixed_code_;  // decided by something other than a rank
  bool ending_ = false;
  bool told_ = false;  // ranks know of a loss, the first of which is all that they use
  bool servers_ended_ = false;
  std::optional<TimePoint> interrupted_;
  bool typed_ = false;  // Ctrl-C has come
  bool insisted_ = false;
};

}  // namespace distrun::launcher
