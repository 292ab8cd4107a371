// A job is in one of three states: its hosts are asked and prepared (JobStart), its ranks run (JobRunning), or its rest
// is ended (JobEnding). Each state holds only what it needs. The job's loop moves from one to the next.
#pragma once

#include <optional>

#include "launcher/job/agents/agent_links.h"
#include "launcher/spawn/frames.h"
#include "launcher/spawn/poller.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

class JobState {
 public:
  virtual ~JobState() = default;
  // False: this state does not accept such a message. Error: the message cannot be decoded. Messages that mean the same
  // in all states are not passed here.
  virtual Result<bool> on(AgentLink& agent, const Frame& frame) = 0;
  // This agent is lost; its state is kLost or kLostInEnding.
  virtual void on_lost(AgentLink& agent) = 0;
  // The reason why a lost agent is gone is known now: at once, or when its process has been reaped.
  virtual void on_explained(AgentLink& agent) = 0;
  // These agents are lost, and the reason is known.
  virtual void on_silent(const HostLoss& loss) = 0;
  virtual void watch(Poller& poller) { static_cast<void>(poller); }
  virtual void tick(TimePoint now) = 0;
  [[nodiscard]] virtual std::optional<TimePoint> deadline() const { return std::nullopt; }
};

// Decodes a message and runs `action` on it. Returns true, or why it cannot be decoded.
template <class Message, class Action>
Result<bool> with(const Result<Message>& decoded, Action action) {
  if (!decoded.ok()) return decoded.status();
  action(*decoded);
  return true;
}

}  // namespace distrun::launcher
