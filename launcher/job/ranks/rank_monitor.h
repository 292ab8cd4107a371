// Collects what agents and the rendezvous report about the ranks, passes it to the verdict, and carries out the
// verdict's decisions. For the head's loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/agents/agent_links.h"
#include "launcher/job/ranks/carrier_loss.h"
#include "launcher/job/ranks/hang_watch.h"
#include "launcher/job/ranks/membership.h"
#include "launcher/job/ranks/notice.h"
#include "launcher/job/ranks/rank_output.h"
#include "launcher/job/ranks/survey.h"
#include "launcher/job/ranks/unreachable_ranks.h"
#include "launcher/job/ranks/verdict.h"
#include "launcher/spawn/poller.h"
#include "runtime/net/store/store_server.h"

namespace distrun::launcher {

// When agents must have killed all processes, and when servers are killed. None: no deadline.
struct KillTimes {
  std::optional<TimePoint> all;
  std::optional<TimePoint> servers;
};

class RankMonitor {
 public:
  struct Config {
    double grace = 10;  // seconds
    std::set<int> servers;
    std::set<int> clients;
    bool own_servers = false;          // servers of the user's program, which may have something to save
    std::optional<net::JobKey> key{};  // of the job; none: paths between hosts are not tried
    double host_timeout = 30;          // seconds, the setting
    std::string carrier_host{};        // the host of MPI's launcher; empty: it has not started the agents
  };
  // Starts without ranks. Both arguments must outlive it.
  RankMonitor(AgentLinks& agents, RankOutput& output);
  void open(Membership members, const Config& config, std::unique_ptr<net::StoreServer> store);

  [[nodiscard]] const Verdict& verdict() const { return verdict_; }
  [[nodiscard]] const Membership& members() const { return members_; }
  [[nodiscard]] bool ending() const { return verdict_.ending(); }
  [[nodiscard]] Notice::State state() const {
    return {.ending = verdict_.ending(), .any_in_session = verdict_.sessions().any(), .stopping = stop_.has_value()};
  }
  [[nodiscard]] const std::string& store_address() const { return store_->address(); }

  void watch(Poller& poller);
  // `all_over`: no rank runs, and no agent is left. Returns the agents of lost hosts: a rank misses another one there,
  // and the agent does not answer.
  std::vector<AgentLink*> tick(TimePoint now, bool all_over = false);
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  // When agents must have killed all processes; none: they have no order to do so.
  [[nodiscard]] std::optional<TimePoint> kill_by() const { return kill_by_.all; }

  // Handles an agent's frame about its ranks: starts, output, states and ends. False: the frame is about something
  // else.
  Result<bool> on(const AgentLink& agent, const Frame& frame);
  // The rank whose output has ended, according to this frame. None: the frame cannot be decoded, or the rank is
  // unknown.
  [[nodiscard]] std::optional<int> drained(const Frame& frame) const;
  // The ranks of this host are gone with it. The job does not wait for their ends.
  void ranks_gone(const AgentLink& agent);
  // Acts on the loss of one or several hosts.
  void hosts_lost(const HostLoss& loss);
  // With --mpi, while ranks run: pass it every event that may be the end of a part of MPI's launcher. tick() acts on
  // the result. Null otherwise.
  [[nodiscard]] CarrierLoss* carrier();

  // True if all ranks of this agent have used the runtime or have ended.
  [[nodiscard]] bool all_came(const AgentLink& agent) const;

  // The job ends for a reason outside the ranks.
  void interrupt(int signal, TimePoint now) { carry_out(verdict_.interrupted(signal, now)); }
  // Like interrupt(), but with at most this time from TERM to KILL.
  void interrupt_soon(int signal, TimePoint now, std::uint32_t kill_after_ms);
  // Shows where ranks in a session are before the job ends. True once the job ends. `why`: what the launcher was
  // waiting for, if no rank has started.
  bool time_out(TimePoint now, const std::string& why);
  void reader_gone() { carry_out(verdict_.reader_gone()); }
  // The job cannot start, or not completely: agents end at once.
  void break_off(int code, const std::string& why);

  // Asks ranks in a session to stop at the same step.
  void ask_to_stop(const std::string& why);
  // Returns once that ranks stop by themselves, and why.
  std::optional<std::string> take_stop();
  void signal_ranks(int signal, const std::vector<int>& ranks);

  // Shows the stacks of all ranks.
  void show_stacks(TimePoint now);
  [[nodiscard]] const HangWatch& hangs() const { return hangs_; }

 private:
  void read_store();
  void on_notice(const net::StoreNotice& notice);
  void disconnected(const net::StoreNotice& notice);
  void decide(CarrierLoss& parts, TimePoint now);
  void carry_out(const JobActions& actions);

  AgentLinks& agents_;
  RankOutput& output_;
  Config config_;
  Membership members_;
  Verdict verdict_;
  std::unique_ptr<net::StoreServer> store_;
  UnreachableRanks unreachable_;
  Survey survey_;
  HangWatch hangs_;
  std::optional<CarrierLoss> carrier_;  // set with --mpi
  std::uint64_t round_ = 0;             // counts the reads from the rendezvous
  std::optional<std::string> stop_;
  KillTimes kill_by_;
};

}  // namespace distrun::launcher
