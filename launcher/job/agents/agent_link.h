// The head's end of the connection to the agent of one host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/preflight/probe.h"
#include "launcher/job/agents/end_deadline.h"
#include "launcher/job/agents/host_silence.h"
#include "launcher/protocol/messages.h"
#include "launcher/spawn/agent_spawner.h"
#include "runtime/net/bytes/link_watches.h"

namespace distrun::launcher {

struct AgentLink {
  // In chronological order. Only an agent that could not start returns to kDown, to be started again.
  enum class State {
    kDown,
    kAsked,         // it must prepare its host and has not answered
    kAnswered,      // it is ready, or refuses
    kDone,          // nothing is left on its host, or the head does not wait for it any more
    kLost,          // it, or its connection, ended before it was done
    kLostInEnding,  // the same, while the job was already being ended
  };

  std::string host;
  std::string user{};
  std::size_t index = 0;                 // of its host
  std::size_t first_index = 0;           // its index before hosts without ranks were dropped
  std::optional<std::size_t> starter{};  // first_index of the agent that started this one
  bool by_ssh = false;
  State state = State::kDown;
  AgentHandle handle{};
  std::optional<HostFacts> facts{};
  std::optional<std::vector<ProbeResult>> probes{};
  std::optional<ResolvedNames> names{};
  SignOfLife sign{};
  bool stopped = false;  // its ranks were stopped with this process, and continue when it has answered
  bool refused = false;  // for what may pass, and the user has read it
  net::BegunRecord begun{};
  EndDeadline end_deadline{};
  std::string tried{};    // that another host had to start it, and why this failed
  std::string printed{};  // the last output of its carrier (ssh, srun) to standard error
  int wait_status = 0;
  std::string silence{};  // why it was given up as silent

  [[nodiscard]] bool up() const { return state != State::kDown; }
  [[nodiscard]] bool done() const { return state >= State::kDone; }
  [[nodiscard]] bool lost() const { return state >= State::kLost; }
  // True if its process has been reaped, or is not a child of this process.
  [[nodiscard]] bool gone() const { return !handle.process.running(); }
  [[nodiscard]] bool over() const { return gone() && handle.pipe.closed(); }

  void count_as_alive(TimePoint now);
  void send(ToAgent type, std::span<const std::byte> payload);
  void answer(const Heartbeat& heartbeat);
  // Continues its ranks after they were stopped together with this process. With a lease, they wait for its answer.
  void resume();
  [[nodiscard]] bool listens() const { return sign.expected && up() && !done(); }
  // Ends it, because the head does not wait for it any more.
  void drop();
  // It ended before it had reported that it was done.
  void lose(bool in_ending, TimePoint now);
  // How the command has ended that carries the agent from another host.
  [[nodiscard]] CommandEnd carrier_end() const;
  // True if another attempt to start it may succeed. `keep_trying`: also a failure that does not pass in a moment
  // counts.
  [[nodiscard]] bool may_come(bool keep_trying) const;
  // Why a lost agent is gone, as text that follows its name.
  [[nodiscard]] std::string why_gone() const;
  // The same, with the name of its host: "host h2 is lost: ...".
  [[nodiscard]] std::string loss() const;
};

}  // namespace distrun::launcher
