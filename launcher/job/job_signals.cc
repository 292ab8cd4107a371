// How a job handles signals to the launcher, and the user's terminal.
#include <signal.h>

#include "launcher/job/job.h"
#include "launcher/job/start/missing_hosts.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/report/failure_report.h"

namespace distrun::launcher {

void Job::on_signals() {
  for (const int number : signals_.take()) {
    if (number == config_.preempt_signal && stops(notice_.at_launcher(number, ranks_.state()), "the launcher")) {
      continue;
    }
    switch (number) {
      case SIGCHLD:
        reap();
        break;
      case SIGUSR1:
      case SIGUSR2:
        agents_.send_all(ToAgent::kSignal, SignalRanks{.signal = number});
        break;
      case SIGQUIT:
        if (!running_) {
          screen_.print("Ctrl-\\ shows where the ranks are; none has started yet");
        } else {
          ranks_.show_stacks(Clock::now());
        }
        break;
      case SIGTSTP:
        suspend();
        break;
      case SIGWINCH:
        terminal_.send_window();
        break;
      case SIGCONT:
        resume();
        break;
      default:
        interrupt(number, "distrun");
    }
  }
}

// Handles a signal that asks for the end of the job.
void Job::interrupt(int number, const std::string& who) {
  const bool first = !ranks_.ending();
  std::string missing;
  if (first && !running_) {
    missing = missing_hosts(agents_, [this](const AgentLink& agent) { return start_->has_answered(agent); });
  }
  ranks_.interrupt(number, Clock::now());
  if (ranks_.verdict().interrupted_again()) screen_->end_soon();
  advance();
  if (!first) return;
  if (!running_) {
    return screen_.print((number == SIGINT ? "interrupted" : who + " got " + signal_name(number)) +
                         "; no rank has started" + (missing.empty() ? "" : ": " + missing));
  }
  const std::string grace = seconds_text(config_.options().end.grace) + " s to end";
  if (number == SIGINT) {
    return screen_.print("interrupted; ranks get INT and " + grace +
                         ", TERM after half of it (Ctrl-C again kills them now)");
  }
  screen_.print(who + " got " + signal_name(number) + "; ranks get TERM and " + grace);
}

// --preempt-signal, sent to this process or an agent. True if ranks only stop by themselves, or already do so.
bool Job::stops(Notice::Means means, const std::string& who) {
  if (means != Notice::Means::kStop) return means == Notice::Means::kKnown;
  const std::string why = who + " got " + signal_name(config_.preempt_signal);
  ranks_.ask_to_stop(why);
  running_->give_grace(why, Clock::now());
  return true;
}

// Ctrl-Z. Ranks are in other sessions, so the terminal's stop signal does not reach them.
void Job::suspend() {
  agents_.send_all(ToAgent::kSignal, SignalRanks{.signal = SIGSTOP, .whole_group = true});
  agents_.send_all(ToAgent::kAlive, Alive{.what = Alive::What::kHold});
  agents_.flush_all();
  terminal_.leave();
  stop_as_asked();
  // Nothing was read while this process was stopped.
  agents_.count_all_as_alive(Clock::now());
  // Called at once, whether this process was stopped or not: without a stop there is no SIGCONT.
  resume();
}

void Job::resume() {
  for (const auto& agent : agents_.all()) agent->resume();
  input_.resume();
  terminal_.enter();
}

}  // namespace distrun::launcher
