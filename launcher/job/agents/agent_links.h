// The agents of a job, one for each host (with --mpi one for each rank). Knows which agents should send signs of life
// and which are silent, and reads the output of their carriers (ssh, srun, MPI's launcher). For the head's loop.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/agents/agent_link.h"
#include "launcher/job/agents/host_silence.h"
#include "launcher/plan/place/assign.h"
#include "launcher/report/failure_report.h"
#include "launcher/spawn/poller.h"
#include "launcher/spawn/signals.h"

namespace distrun::launcher {

// Hosts that are given up together because no message comes from them.
struct HostLoss {
  std::vector<AgentLink*> links;
  std::string why;  // the same for each: "nothing has come from there for 30 s"
  Cause cause;      // of all of them, in words for the user
};

// The loss of one host alone, with the reason if it is known by now.
HostLoss loss_of(AgentLink& agent);

class AgentLinks {
 public:
  using Print = std::function<void(const std::string&)>;
  // `say` prints a line for the user. `mpi`: the carrier of the agents is MPI's launcher, and its errors are shown at
  // once. `host_timeout` is the setting.
  AgentLinks(const Assignment& hosts, const AgentSpawner& spawner, bool mpi, Print print,
             Duration host_timeout = std::chrono::seconds(30));
  // The address of this machine that the other hosts use.
  void set_own_address(std::string address) { own_address_ = std::move(address); }

  [[nodiscard]] std::size_t size() const { return links_.size(); }
  [[nodiscard]] AgentLink& operator[](std::size_t host) { return *links_.at(host); }
  [[nodiscard]] const std::vector<std::unique_ptr<AgentLink>>& all() const { return links_; }
  // Drops the links to all other hosts: an agent ends when its pipe closes. `chosen` is in the order of the links.
  void keep_only(const Assignment& chosen);

  template <class Message>
  void send_all(ToAgent type, const Message& message) {
    for (auto& link : links_) link->send(type, encode(message));
  }
  void flush_all();
  void count_all_as_alive(TimePoint now);
  void close_all();  // this side sends no more messages

  using OnReadable = std::function<void(AgentLink&)>;
  // `errors`: also reads the standard error of carriers.
  void watch(Poller& poller, bool errors, const OnReadable& on_readable);
  // `kill_by`: when agents must have killed all processes, if they have an order to do so.
  [[nodiscard]] std::optional<TimePoint> deadline(std::optional<TimePoint> kill_by) const;
  // Reports to the user which hosts are silent or back. Returns the hosts that have been silent for host_timeout.
  std::optional<HostLoss> look(TimePoint now);
  // The connection of this agent has ended. Returns a loss if the agent had been silent before: it is then given up
  // together with all other silent ones.
  std::optional<HostLoss> ended(const AgentLink& link, TimePoint now);
  // Asks the host that started this agent by ssh to kill that ssh process.
  void end_carrier(const AgentLink& link);
  // Agents whose current message has not arrived completely within host_timeout. Sets their `silence` to this reason.
  std::vector<AgentLink*> unfinished(TimePoint now);
  // Agents that do not follow an order in time, or whose carriers do not end although all else has.
  [[nodiscard]] std::vector<AgentLink*> overdue(TimePoint now, std::optional<TimePoint> kill_by) const;
  // The agent whose process, or whose carrier's process, has been reaped. Null: another child.
  AgentLink* reaped(const Reaped& child);

  [[nodiscard]] bool all_over() const;
  [[nodiscard]] bool any_lost() const;
  // True if an agent was given up because nothing came from it.
  [[nodiscard]] bool any_given_up() const;

  // Reads the last output of its carrier, which explains a failure.
  void take_errors(AgentLink& link);
  // When the ranks have ended, MPI's launcher may print a message about it before it ends. False: it has not ended yet,
  // and there is still time.
  bool mpi_has_printed(TimePoint now);

 private:
  void print_mpi_errors(AgentLink& link);
  [[nodiscard]] std::vector<SignOfLife*> signs() const;
  [[nodiscard]] std::vector<std::string> names(const std::vector<std::size_t>& links) const;
  [[nodiscard]] std::vector<std::string> all_names() const;
  [[nodiscard]] HostLoss loss_of(const std::vector<std::size_t>& lost, Duration silence) const;

  std::vector<std::unique_ptr<AgentLink>> links_;  // by host
  bool mpi_;
  Print print_;
  HostSilence silence_;
  std::string own_address_;
  std::optional<TimePoint> last_words_by_;  // deadline for the last output of MPI's launcher
};

}  // namespace distrun::launcher
