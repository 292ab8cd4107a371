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
#include "launcher/plan/place/assign.h"
#include "launcher/spawn/poller.h"
#include "launcher/spawn/signals.h"

namespace distrun::launcher {

class AgentLinks {
 public:
  using Say = std::function<void(const std::string&)>;
  // `say` is for the user. `mpi`: what carries the agents is MPI's launcher, whose errors are the user's at once.
  AgentLinks(const Assignment& hosts, const AgentSpawner& spawner, bool mpi, Say say);

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
  // Speaks to agents that wait for that. Returns those from which nothing has come for too long, or whose message has
  // begun and is not whole after `limit`, which their `silence` says.
  std::vector<AgentLink*> beat(TimePoint now, Duration limit);
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

  std::vector<std::unique_ptr<AgentLink>> links_;  // by host
  bool mpi_;
  Say say_;
  std::optional<TimePoint> last_words_by_;  // how long MPI's launcher is waited for
};

}  // namespace distrun::launcher
