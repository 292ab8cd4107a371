// The head's end of the conversation with the agent of one host.
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
  // In the order in which they come; only an agent that could not start goes back to kDown, to be started again.
  enum class State {
    kDown,
    kAsked,         // it is to prepare its host and has not answered
    kAnswered,      // it is ready, or refuses
    kDone,          // nothing is left on its host, or nobody waits for it any more
    kLost,          // it ended, or its connection did, before it had said so
    kLostInEnding,  // the same while the job was being ended anyway
  };

  std::string host;
  std::string user{};
  std::size_t index = 0;                 // of its host
  std::size_t first_index = 0;           // the same before hosts without ranks were let go
  std::optional<std::size_t> starter{};  // the first_index of the one whose host started it
  bool by_ssh = false;
  State state = State::kDown;
  AgentHandle handle{};
  std::optional<HostFacts> facts{};
  std::optional<std::vector<ProbeResult>> probes{};
  SignOfLife sign{};
  bool stopped = false;  // its ranks are, with this process, and go on when it has answered
  net::BegunRecord begun{};
  EndDeadline end_deadline{};
  std::string tried{};    // that another host was to start it, and why it has not
  std::string printed{};  // the end of what carries it wrote to its standard error
  int wait_status = 0;
  std::string silence{};  // why it was given up

  [[nodiscard]] bool up() const { return state != State::kDown; }
  [[nodiscard]] bool done() const { return state >= State::kDone; }
  [[nodiscard]] bool lost() const { return state >= State::kLost; }
  // Its process, if it is a child of this one, has been reaped.
  [[nodiscard]] bool gone() const { return !handle.process.running(); }
  [[nodiscard]] bool over() const { return gone() && handle.pipe.closed(); }

  void heard(TimePoint now);
  void send(ToAgent type, std::span<const std::byte> payload);
  void answer(const Beat& beat);
  // Its ranks go on after they were stopped with this process.
  void resume();
  [[nodiscard]] bool listens() const { return sign.expected && up() && !done(); }
  // Nobody waits for it any more: it is ended.
  void drop();
  // It ended before it had said that it was done.
  void lose(bool in_ending, TimePoint now);
  // Why a lost one is gone, in words that follow its name.
  [[nodiscard]] std::string why_gone() const;
  // The same with its host: "host h2 is lost: ...".
  [[nodiscard]] std::string loss() const;
};

}  // namespace distrun::launcher
