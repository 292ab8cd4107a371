// The agents of a job, one for each host (with --mpi one for each rank): who is to be heard of, who is silent, and what
// those say that carry agents to their hosts. For the head's loop.
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

// Hosts that are given up together because nothing comes from them.
struct HostLoss {
  std::vector<AgentLink*> links;
  std::string why;  // of each of them: "nothing has come from there for 30 s"
  Cause cause;      // of all, in words for the user
};

// Of one host alone; why, where that is known by now.
HostLoss loss_of(AgentLink& agent);

class AgentLinks {
 public:
  using Say = std::function<void(const std::string&)>;
  // `say` is for the user. `mpi`: what carries the agents is MPI's launcher, whose errors are the user's at once.
  // `host_timeout`: the setting.
  AgentLinks(const Assignment& hosts, const AgentSpawner& spawner, bool mpi, Say say,
             Duration host_timeout = std::chrono::seconds(30));
  // That of this machine which the other hosts use.
  void set_own_address(std::string address) { own_address_ = std::move(address); }

  [[nodiscard]] std::size_t size() const { return links_.size(); }
  [[nodiscard]] AgentLink& operator[](std::size_t host) { return *links_.at(host); }
  [[nodiscard]] const std::vector<std::unique_ptr<AgentLink>>& all() const { return links_; }
  // Those of other hosts are let go: an agent ends when its pipe does. `chosen` is in the order of the links.
  void keep_only(const Assignment& chosen);

  template <class Message>
  void send_all(ToAgent type, const Message& message) {
    for (auto& link : links_) link->send(type, encode(message));
  }
  void flush_all();
  void heard_all(TimePoint now);
  void close_all();  // nothing more comes from this side

  using OnReadable = std::function<void(AgentLink&)>;
  // `errors`: also what carriers print.
  void watch(Poller& poller, bool errors, const OnReadable& on_readable);
  // `kill_by`: when agents are to have killed what is left, if they were told to.
  [[nodiscard]] std::optional<TimePoint> deadline(std::optional<TimePoint> kill_by) const;
  // Tells the user of hosts that are silent or back. Returns those from which nothing has come for host_timeout.
  std::optional<HostLoss> look(TimePoint now);
  // The connection of this one has ended. Set: it had been silent before, and is given up with all that are.
  std::optional<HostLoss> ended(const AgentLink& link, TimePoint now);
  // What carries this one from another host is ended there.
  void end_carrier(const AgentLink& link);
  // Agents whose message has begun and is not whole after host_timeout, which their `silence` says.
  std::vector<AgentLink*> unfinished(TimePoint now);
  // Agents that do not do what they were told to, or whose carriers stay when all is over.
  [[nodiscard]] std::vector<AgentLink*> overdue(TimePoint now, std::optional<TimePoint> kill_by) const;
  // The agent, or what carries it, whose process has been reaped; null: it was another child.
  AgentLink* reaped(const Reaped& child);

  [[nodiscard]] bool all_over() const;
  [[nodiscard]] bool any_lost() const;

  // The end of what carries it printed explains a failure.
  void take_errors(AgentLink& link);
  // When the ranks have ended MPI's launcher may have something to say about that, and then ends. False: not yet, and
  // there is time.
  bool mpi_has_spoken(TimePoint now);

 private:
  void say_mpi_errors(AgentLink& link);
  [[nodiscard]] std::vector<SignOfLife*> signs() const;
  [[nodiscard]] std::vector<std::string> names(const std::vector<std::size_t>& links) const;
  [[nodiscard]] std::vector<std::string> all_names() const;
  [[nodiscard]] HostLoss loss_of(const std::vector<std::size_t>& lost, Duration silence) const;

  std::vector<std::unique_ptr<AgentLink>> links_;  // by host
  bool mpi_;
  Say say_;
  HostSilence silence_;
  std::string own_address_;
  std::optional<TimePoint> last_words_by_;  // how long MPI's launcher is waited for
};

}  // namespace distrun::launcher
