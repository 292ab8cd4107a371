// What becomes known of the ranks, from their agents and from the rendezvous, and what that means for all others: the
// verdict's decisions are carried out here. For the head's loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/agents/agent_links.h"
#include "launcher/job/ranks/carrier_loss.h"
#include "launcher/job/ranks/membership.h"
#include "launcher/job/ranks/notice.h"
#include "launcher/job/ranks/rank_output.h"
#include "launcher/job/ranks/unreachable_ranks.h"
#include "launcher/job/ranks/verdict.h"
#include "launcher/spawn/poller.h"
#include "runtime/net/store/store_server.h"

namespace distrun::launcher {

// When agents are to have killed what is left, and when servers are killed; none: nobody told them to.
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
    bool own_servers = false;  // of the program, which may have something to save
    std::string carrier_host;  // that of MPI's launcher; empty: it has not started the agents
  };
  // There are no ranks yet. Both must outlive it.
  RankMonitor(AgentLinks& agents, RankOutput& output);
  void open(Membership members, const Config& config, std::unique_ptr<net::StoreServer> store);

  [[nodiscard]] const Verdict& verdict() const { return verdict_; }
  [[nodiscard]] const Membership& members() const { return members_; }
  [[nodiscard]] bool ending() const { return verdict_.ending(); }
  [[nodiscard]] Notice::State state() const {
    return {.ending = verdict_.ending(), .any_in_session = verdict_.any_in_session(), .stopping = stop_.has_value()};
  }
  [[nodiscard]] const std::string& store_address() const { return store_->address(); }

  void watch(Poller& poller);
  void tick(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  // When agents are to have killed what is left; none: nobody told them to.
  [[nodiscard]] std::optional<TimePoint> kill_by() const { return kill_by_.all; }

  // What an agent says of a rank: its start, its output, its end. False: the frame says something else.
  Result<bool> on(const Frame& frame);
  // This frame says that a rank's output has come to its end; none: it cannot be read.
  [[nodiscard]] std::optional<int> drained(const Frame& frame) const;
  // The ranks of this host are gone with it, and nobody waits for their ends.
  void ranks_gone(const AgentLink& agent);
  // What follows from that.
  void host_lost(const AgentLink& agent);
  // With --mpi, while ranks run: tell it what may be the end of a part of MPI's launcher. tick() says what it means.
  [[nodiscard]] CarrierLoss* carrier();
  void hosts_lost(const HostLoss& loss);
  // "Rank 2 there is", "Ranks 2-3 there are".
  [[nodiscard]] std::string ranks_there(const std::vector<const AgentLink*>& agents) const;

  // They have used the runtime, or have ended.
  [[nodiscard]] bool all_came(const AgentLink& agent) const;

  // The job ends for a reason that is none of the ranks'.
  void interrupt(int signal, TimePoint now) { carry_out(verdict_.interrupted(signal, now)); }
  // As interrupt(), with this time at most from TERM to KILL.
  void interrupt_soon(int signal, TimePoint now, std::uint32_t kill_after_ms);
  void time_out() { carry_out(verdict_.timed_out()); }
  void reader_gone() { carry_out(verdict_.reader_gone()); }
  // The job cannot start, or not whole: agents end at once.
  void break_off(int code, const std::string& why);

  // Ranks in a session are to stop at the same step.
  void ask_to_stop(const std::string& why);
  // That they will do so for a reason of their own, once.
  std::optional<std::string> take_stop();
  void signal_ranks(int signal, const std::vector<int>& ranks);

 private:
  void read_store();
  void on_notice(const net::StoreNotice& notice);
  void disconnected(const net::StoreNotice& notice);
  void exited(const RankExited& event);
  void report_unreachable(TimePoint now);
  void carry_out(const JobActions& actions);

  AgentLinks& agents_;
  RankOutput& output_;
  Config config_;
  Membership members_;
  Verdict verdict_;
  std::unique_ptr<net::StoreServer> store_;
  UnreachableRanks unreachable_;
  std::optional<CarrierLoss> carrier_;  // with --mpi
  std::set<int> came_;                  // ranks that have used the runtime
  std::uint64_t round_ = 0;             // of looking at the rendezvous
  std::optional<std::string> stop_;
  KillTimes kill_by_;
};

}  // namespace distrun::launcher
