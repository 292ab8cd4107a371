// Asks the agents for facts that ranks cannot know of each other: which processes run, and which paths between hosts
// are broken. Decides who is to blame when ranks miss each other. For the head's loop.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/job/agents/agent_links.h"
#include "launcher/job/ranks/membership.h"
#include "launcher/job/ranks/missed_ranks.h"
#include "launcher/protocol/messages.h"
#include "launcher/spawn/frames.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/store_server.h"

namespace distrun::launcher {

class Survey {
 public:
  // Both arguments must outlive it.
  Survey(AgentLinks& agents, const Membership& members) : agents_(agents), members_(members) {}
  // `host_timeout` is the setting. Without a key no paths are tried.
  void open(std::optional<net::JobKey> key, double host_timeout);

  // --- events ---
  void joined(int rank, int pid);  // this process is in a session
  [[nodiscard]] bool has_joined(int rank) const { return pids_.contains(rank); }
  void add(const net::StoreNotice& notice, TimePoint now);  // kFollows, kStalled, kNoProgress
  void awaits_exit(int rank, bool awaited) { missed().awaits_exit(rank, awaited); }
  // As MissedRanks::seen().
  void seen(std::vector<PendingException> exceptions, bool more) {
    if (missed_) missed_->seen(std::move(exceptions), more);
  }
  // Asks the agents for the states of the ranks' processes. This has no effect on the decision.
  void ask_states() { send_question(AskStates::kStatesOnly, false); }
  // By rank, as in /proc/PID/stat: the newest state that an agent has sent.
  [[nodiscard]] const std::map<int, char>& states() const { return states_; }
  // False: the frame is about something else.
  Result<bool> on(const AgentLink& agent, const Frame& frame);

  // --- what is due ---
  struct Found {
    bool no_cause = false;  // as in MissedRanks::Step
    std::optional<Blame> blame;
  };
  Found look(TimePoint now);
  // Call it when no rank runs any more.
  Found conclude() { return missed_ ? found(missed_->conclude()) : Found{}; }
  [[nodiscard]] std::optional<TimePoint> deadline() const { return missed_ ? missed_->deadline() : std::nullopt; }
  // Returns once the agents on other hosts that have not answered although a rank misses one there. Those hosts are
  // lost.
  std::vector<AgentLink*> take_silent() { return std::exchange(silent_, {}); }

 private:
  MissedRanks& missed();
  Found found(MissedRanks::Step step) const;
  void leave_out_absent();
  void stop_probing(int host);
  void ask(bool listen);
  void send_question(std::uint32_t round, bool listen);
  void answered(const AgentLink& agent, const RankStates& answer);
  void try_paths();
  void probed(const AgentLink& agent, const Probed& answer);
  void add_addresses(Blame& blame) const;
  [[nodiscard]] bool absent(const AgentLink& agent) const;
  [[nodiscard]] std::string address_of(std::size_t host) const;

  AgentLinks& agents_;
  const Membership& members_;
  std::optional<net::JobKey> key_;
  double host_timeout_ = 30;
  std::optional<MissedRanks> missed_;  // once ranks run
  std::uint32_t round_ = 0;            // of questions
  std::map<int, char> states_;
  std::map<int, int> pids_;             // by rank: the process in its session
  std::map<int, std::uint16_t> ports_;  // by host: where its agent answers probes
  std::set<int> probing_;               // hosts whose agents try paths
  std::vector<BrokenPath> broken_;
  std::vector<AgentLink*> silent_;
};

}  // namespace distrun::launcher
