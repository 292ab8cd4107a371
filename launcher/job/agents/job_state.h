// A job is in one of three states: its hosts are asked and prepared (JobStart), its ranks run (JobRunning), what is
// left of it is ended (JobEnding). Each has what it needs for that alone; the job's loop goes from one to the next.
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
  // False: such a message has no place in this state. An error: it cannot be read. What means the same in all states
  // does not come here.
  virtual Result<bool> on(AgentLink& agent, const Frame& frame) = 0;
  // This agent is lost; its state is kLost or kLostInEnding.
  virtual void on_lost(AgentLink& agent) = 0;
  // It is known why a lost one is gone: at once, or when its process has been reaped.
  virtual void on_explained(AgentLink& agent) = 0;
  // These are lost, and it is known why.
  virtual void on_silent(const HostLoss& loss) = 0;
  virtual void watch(Poller& poller) { static_cast<void>(poller); }
  virtual void tick(TimePoint now) = 0;
  [[nodiscard]] virtual std::optional<TimePoint> deadline() const { return std::nullopt; }
};

// Decodes a message and does something with it: true, or why it cannot be read.
template <class Message, class Action>
Result<bool> with(const Result<Message>& decoded, Action action) {
  if (!decoded.ok()) return decoded.status();
  action(*decoded);
  return true;
}

}  // namespace distrun::launcher
