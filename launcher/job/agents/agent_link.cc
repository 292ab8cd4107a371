#include "launcher/job/agents/agent_link.h"

#include <signal.h>
#include <sys/wait.h>

#include <utility>

#include "launcher/exit_codes.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/report/failure_report.h"

namespace distrun::launcher {
namespace {

constexpr std::size_t kNoiseShown = 200;

}  // namespace

void AgentLink::count_as_alive(TimePoint now) {
  sign.received_at = now;
  end_deadline.alive(now);
}

void AgentLink::send(ToAgent type, std::span<const std::byte> payload) {
  handle.pipe.send(static_cast<std::uint8_t>(type), payload);
}

void AgentLink::answer(const Heartbeat& heartbeat) {
  if (heartbeat.sent != 0) send(ToAgent::kAlive, encode(Alive{.what = Alive::What::kAnswer, .sent = heartbeat.sent}));
  // The agent's lease from before the stop is no longer valid, and it has a new one. So its ranks may continue.
  if (heartbeat.ready && std::exchange(stopped, false)) {
    send(ToAgent::kSignal, encode(SignalRanks{.signal = SIGCONT, .whole_group = true}));
  }
}

void AgentLink::resume() {
  stopped = listens();
  send(ToAgent::kAlive, encode(Alive{.what = Alive::What::kResume}));
  if (!stopped) send(ToAgent::kSignal, encode(SignalRanks{.signal = SIGCONT, .whole_group = true}));
}

void AgentLink::drop() {
  state = State::kDone;
  handle.process.signal(SIGKILL);
  handle.pipe.abandon();
}

// A local agent is killed: its processes become children of this one only when it is gone. The carrier of a remote
// agent gets some time to print why it ends, unless the agent was silent.
void AgentLink::lose(bool in_ending, TimePoint now) {
  state = in_ending ? State::kLostInEnding : State::kLost;
  end_deadline.done(now);
  if (!handle.remote || !silence.empty()) handle.process.signal(SIGKILL);
  handle.pipe.close_out();
}

CommandEnd AgentLink::carrier_end() const {
  return {.exit_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0,
          .printed = printed + handle.pipe.noise(),
          .by_ssh = by_ssh,
          .greeted = !handle.pipe.awaits_greeting(),
          .answered = facts.has_value()};
}

bool AgentLink::may_come(bool keep_trying) const {
  // Nothing here can start an agent that connects by itself.
  const bool ours = by_ssh || handle.process.pid() > 0;
  if (!handle.remote || !ours) return false;
  const CommandEnd end = carrier_end();
  return keep_trying ? may_come_later(end) : ssh_may_pass(end.exit_code, printed);
}

std::string AgentLink::why_gone() const {
  if (!silence.empty()) return silence;
  if (handle.process.pid() < 0) return "its connection ended";
  const Status& fault = handle.pipe.fault();
  if (!fault.ok() && by_ssh && handle.pipe.awaits_greeting()) {
    return login_failure(LoginFault::kPrints, handle.pipe.noise());
  }
  if (!fault.ok()) return fault.message() + ": " + in_quotes(handle.pipe.noise().substr(0, kNoiseShown));
  const bool by_signal = WIFSIGNALED(wait_status);
  const int number = by_signal ? WTERMSIG(wait_status) : 0;
  const int code = by_signal ? 0 : WEXITSTATUS(wait_status);
  const std::string end = (by_signal ? "was " : "") + text_of(cause_of_end(number, code));
  if (!handle.remote) return end;
  if (by_signal) return "what carries its agent " + end;
  if (code == exit_code::kHostLost) {
    return "its ranks have been ended there: the agent had no answer from the launcher within --host-timeout, as where "
           "it is stopped";
  }
  return start_failure(carrier_end());
}

std::string AgentLink::loss() const {
  if (handle.remote) return "host " + host + " is lost: " + why_gone();
  return "the agent on host " + host + " (pid " + std::to_string(handle.process.pid()) + ") " + why_gone();
}

}  // namespace distrun::launcher
