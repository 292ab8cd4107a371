#include "launcher/report/failure_report.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <map>
#include <utility>

#include "launcher/exit_codes.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/report/lines/last_exception.h"
#include "runtime/base/ended_link.h"

namespace distrun::launcher {
namespace {

std::string state_text(char state) {
  const std::string why = why_it_cannot_run(state);
  return why.empty() ? "" : "is " + why + " and ";
}

std::string memory_text(const Cause& cause) {
  return cause.out_of_memory ? ", because the memory of its machine or container was used up (the kernel's OOM killer)"
                             : "";
}

std::string name_of(const BrokenLink::End& end) { return "rank " + std::to_string(end.rank) + " (" + end.host + ")"; }

std::string place_of(const BrokenLink::End& end) {
  return end.host + (end.address.empty() ? "" : " (" + end.address + ")");
}

// "h1 (10.0.0.1) and h2 (10.0.0.2)", in the order of the job's hosts.
std::string both_places(const BrokenLink& link) {
  const bool turned = link.to.number < link.from.number;
  return place_of(turned ? link.to : link.from) + " and " + place_of(turned ? link.from : link.to);
}

std::string network_text(const BrokenLink& link) {
  std::string out = link.noticed + "; all ranks run: ";
  if (link.from.rank >= 0) {
    out = name_of(link.from) + " has heard nothing from " + name_of(link.to) +
          (link.silent > 0 ? " for " + seconds_text(link.silent) + " s" : "") + "; both run: ";
  }
  if (link.host.empty()) {
    out += "the network between " + both_places(link) + " is broken";
  } else {
    out += "the network of " + place_of(link.host == link.to.host ? link.to : link.from) +
           " is broken: " + join(link.others, ", ") + " do not reach it";
  }
  return link.end == LinkEnd::kLargeSilent ? out + "; " + kLargeMessagesLost : out;
}

std::string link_text(const BrokenLink& link) {
  const bool known = link.from.rank >= 0;
  const std::string other = known ? name_of(link.from) : "another rank";
  const bool two_hosts = known && link.from.host != link.to.host;
  const std::string why = link.why.empty() ? "" : " (" + link.why + ")";
  const std::string foreign = "a library may have written into a descriptor of distrun's";
  switch (link.end) {
    case LinkEnd::kClosed:
      return "closed its connection to " + other + why + "; both run";
    case LinkEnd::kReset:
      return "has lost its connection to " + other + ", which was reset" + why + "; both run";
    case LinkEnd::kTampered:
      return "sent " + other + " bytes that were changed on the way" + why + ": " +
             (two_hosts ? "the network between " + both_places(link) + ", or the memory of one of them, is faulty"
                        : foreign);
    case LinkEnd::kMalformed:
      return "sent " + other + " a message that distrun does not send" + why + ": " + foreign;
    case LinkEnd::kUnfinished:
      return "began a message to " + other + " and did not end it" + why + ": " + foreign;
    case LinkEnd::kUnknown:
    case LinkEnd::kSilent:
    case LinkEnd::kLargeSilent:
      break;
  }
  return "has lost its connection to " + other + why + "; both run";
}

// True if the rank asked at a prompt and had no input.
bool ends_at_prompt(const Cause& cause) {
  if (cause.kind == CauseKind::kRaised) return is_end_of_input(cause.text);
  return cause.kind == CauseKind::kExited && is_end_of_input(cause.exception);
}

std::string capitalized(std::string text) {
  if (!text.empty()) text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

// The cure as a sentence, for a separate line. Empty without a cure.
std::string cure_line(const FailureReport& failure) { return sentence(capitalized(cure_of(failure))); }

std::string cure_of_early_leave(Leave how) {
  switch (how) {
    case Leave::kEnded:
      return "the ranks did different numbers of steps: let each do as many, or call join() at its end";
    case Leave::kRanOn:
      return "let every rank do the same number of steps before it calls shutdown()";
    case Leave::kNoShutdown:
      return "let every rank do the same number of steps, and call shutdown() before it ends";
    case Leave::kNoInit:
    case Leave::kNoNextInit:
      break;
  }
  return "let every rank call init(), or start only the ranks that call it (-np)";
}

std::string early_leave_text(const FailureReport& failure) {
  const std::string end = " left early: it " + text_of(failure.cause.leave);
  const std::string needed =
      " while other ranks still needed it" + (failure.tensor.empty() ? "" : " for '" + failure.tensor + "'");
  switch (failure.cause.leave) {
    case Leave::kEnded:
    case Leave::kNoShutdown:
      return end + needed;
    case Leave::kRanOn:
      return end + needed + ", and its process ran on";
    case Leave::kNoInit:
    case Leave::kNoNextInit:
      break;
  }
  return end + ", and other ranks waited for it there";
}

std::string cure_of_lost_host(const Cause& cause) {
  if (cause.silent > 0) return "if the host only paused, give it more time with --host-timeout SECONDS";
  if (cause.agent_here) {
    return "the agent is distrun's process that starts and watches the ranks of a host; its ranks end with it.\nLook "
           "in the log (journalctl, dmesg) for what ended it: a kill, or memory that ran out";
  }
  return "see if the host is up, and look in its log (journalctl, dmesg) for what ended distrun's agent there";
}

// The line of the program at which the rank of a stall was seen. Empty: it is not known.
std::string where_it_is(const FailureReport& failure) {
  for (const RankView& view : failure.hang.views) {
    if (view.rank != failure.rank || !view.state || view.state->threads.empty()) continue;
    const std::vector<net::CodeFrame>& frames = view.state->threads.front().frames;
    const auto own = std::find_if(frames.begin(), frames.end(), [](const net::CodeFrame& frame) {
      return !frame.place.file.empty() && !is_library(frame.place.file);
    });
    if (own != frames.end()) return own->place.file + ":" + std::to_string(own->place.line) + " in " + own->function;
  }
  return {};
}

std::string cure_of_stall(const FailureReport& failure) {
  if (failure.cause.state != '\0' || !failure.cause.exception.empty()) return {};
  const std::string where = printable(where_it_is(failure));
  if (!where.empty()) return "look at the line where rank " + std::to_string(failure.rank) + " was: " + where;
  return {};
}

// One line, because a prompt says nothing about the program.
std::string prompt_report(const FailureReport& failure) {
  const bool raised = failure.cause.kind == CauseKind::kRaised;
  const std::string& exception = raised ? failure.cause.text : failure.cause.exception;
  const std::size_t place = exception.rfind(" (");
  return "rank " + std::to_string(failure.rank) + " on host " + failure.host + " had no input at a prompt" +
         (place == std::string::npos ? "" : printable(exception.substr(place))) + ": use --tty " +
         std::to_string(failure.rank) + ". Exit code " + std::to_string(failure.exit_code.value_or(1)) + ".\n";
}

}  // namespace

std::string why_it_cannot_run(char state) {
  if (state == 'T') return "stopped (T: by a signal)";
  if (state == 't') return "stopped (t: by a debugger)";
  if (state == 'D') return "blocked in the kernel (D: by a disk, a network file system or a driver)";
  return "";
}

std::string signal_name(int number) {
  const char* short_name = ::sigabbrev_np(number);
  return short_name == nullptr ? "signal " + std::to_string(number) : "SIG" + std::string(short_name);
}

Cause cause_of_end(int signal, int exit_code, bool out_of_memory) {
  return {.kind = signal == 0 ? CauseKind::kExited : CauseKind::kKilled,
          .exit_code = signal == 0 ? exit_code : 0,
          .signal = signal,
          .out_of_memory = out_of_memory};
}

std::string process_name(const std::string& name, int pid) {
  return name + (pid > 0 ? " (pid " + std::to_string(pid) + ")" : "");
}

std::string carrier_text(const CarrierEnd& end) {
  const bool by_signal = WIFSIGNALED(end.wait_status);
  const Cause cause =
      cause_of_end(by_signal ? WTERMSIG(end.wait_status) : 0, by_signal ? 0 : WEXITSTATUS(end.wait_status));
  return process_name(end.name, end.pid) + (by_signal ? " was " : " ") + text_of(cause);
}

std::string text_of(const Cause& cause) {
  const std::string other =
      cause.by_other ? " by its agent, which something other than distrun told to end (scancel?)" : "";
  switch (cause.kind) {
    case CauseKind::kExited:
      return (cause.exception.empty() ? "" : "raised " + cause.exception + " and ") + "exited with code " +
             std::to_string(cause.exit_code) + memory_text(cause) + other;
    case CauseKind::kKilled:
      return "killed by signal " + std::to_string(cause.signal) + " (" + signal_name(cause.signal) + ")" +
             memory_text(cause) + other;
    case CauseKind::kStalled:
      if (!cause.exception.empty()) {
        return "raised " + cause.exception + " and then waited for other ranks: " + cause.text;
      }
      return state_text(cause.state) + "blocked the other ranks: " + cause.text;
    case CauseKind::kNetworkBroken:
      return network_text(*cause.link);
    case CauseKind::kLinkEnded:
    case CauseKind::kBadRecord:
      return link_text(*cause.link);
    case CauseKind::kInterrupted:
      return "distrun got " + signal_name(cause.signal);
    case CauseKind::kTimedOut:
      return cause.text.empty() ? "the job has run for longer than its --timeout" : cause.text;
    case CauseKind::kDeadlock:
      return cause.text;
    case CauseKind::kReaderGone:
      return "nobody reads the output of the job any more";
    case CauseKind::kOutputLost:
      return "output of the job could not be written";
    case CauseKind::kRaised:
    case CauseKind::kLeftEarly:
    case CauseKind::kHostLost:
    case CauseKind::kCarrierLost:
    case CauseKind::kOwnNetwork:
    case CauseKind::kNotStarted:
    case CauseKind::kBrokenOff:
      break;
  }
  return cause.text;
}

bool is_crash(int signal) {
  constexpr std::array<int, 7> kCrashes = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
  return std::find(kCrashes.begin(), kCrashes.end(), signal) != kCrashes.end();
}

bool output_may_explain(const Cause& cause) {
  if (cause.kind == CauseKind::kExited || cause.kind == CauseKind::kLeftEarly) return true;
  return cause.kind == CauseKind::kKilled && is_crash(cause.signal);
}

std::string text_of(Leave how) {
  switch (how) {
    case Leave::kEnded:
      break;
    case Leave::kRanOn:
      return "called shutdown()";
    case Leave::kNoShutdown:
      return "exited with code 0 without shutdown()";
    case Leave::kNoInit:
      return "exited with code 0 and never called init()";
    case Leave::kNoNextInit:
      return "exited with code 0 and did not call init() again";
  }
  return "exited with code 0";
}

std::string cure_of(const FailureReport& failure) {
  const Cause& cause = failure.cause;
  if (ends_at_prompt(cause)) return "start the job with --tty " + std::to_string(failure.rank);
  if (!failure.hint.empty()) return failure.hint;
  if (cause.kind == CauseKind::kLeftEarly) return cure_of_early_leave(cause.leave);
  if (cause.kind == CauseKind::kStalled) return cure_of_stall(failure);
  if (cause.kind == CauseKind::kHostLost) return cure_of_lost_host(cause);
  if (cause.kind == CauseKind::kOwnNetwork) return "look at the network of this machine (ip addr, ip route)";
  if (cause.kind == CauseKind::kNetworkBroken) {
    const std::string& from = cause.link->from.host;
    const std::string& to = cause.link->to.host;
    return "test the network with distrun check -H " + from + (from == to ? "" : "," + to);
  }
  if (cause.kind == CauseKind::kTimedOut && cause.text.empty()) return "give the job more time with --timeout SECONDS";
  return cause.out_of_memory ? "use less memory for each rank, or fewer ranks on each host (-H HOST:SLOTS)" : "";
}

std::string first_cause_report(const FailureReport& failure) {
  const Cause& cause = failure.cause;
  if (ends_at_prompt(cause)) return prompt_report(failure);
  const bool deadlock = cause.kind == CauseKind::kDeadlock;
  const std::string rank = "rank " + std::to_string(failure.rank);
  std::string out = deadlock ? "" : process_name(rank + " on host " + failure.host, failure.pid);
  if (deadlock) {
    out = text_of(cause);
  } else if (cause.kind == CauseKind::kLeftEarly) {
    out += early_leave_text(failure);
  } else {
    out += (cause.kind == CauseKind::kKilled   ? " was "
            : cause.kind == CauseKind::kRaised ? " failed: "
                                               : " ") +
           text_of(cause);
  }
  out = sentence(printable_lines(out)) + "\nThis ended the job";
  if (failure.exit_code) out += "; exit code " + std::to_string(*failure.exit_code);
  out += ".\n" + cure_line(failure) + "\n";
  if (out.ends_with("\n\n")) out.pop_back();
  out += exceptions_text(failure.hang, cause.exception.empty() ? -1 : failure.rank);
  // The screen already shows the rank's own report of its error.
  if (cause.kind == CauseKind::kRaised || !cause.exception.empty()) return out;
  if (failure.last_lines_shown && !failure.last_lines.empty()) return out;
  if (failure.last_lines.empty()) return out + (deadlock ? rank : "It") + " had printed nothing.\n";
  out += "The last lines " + (deadlock ? rank : "it") + " wrote:\n";
  for (const std::string& line : failure.last_lines) out += "| " + line + "\n";
  return out;
}

std::string link_report(const FailureReport& failure) {
  const std::string& why = failure.cause.link->why;
  return sentence(text_of(failure.cause)) + "\n" + (why.empty() ? "" : "(" + why + ") ") +
         "This ended the job; exit code " + std::to_string(*failure.exit_code) + ".\n" + cure_line(failure);
}

std::string host_loss_report(const Cause& cause, const std::vector<int>& ranks) {
  std::string out = sentence(printable_lines(text_of(cause))) + "\n";
  if (!ranks.empty()) out += capitalized(rank_list(ranks)) + " ran there. ";
  return out + "This ended the job; exit code " + std::to_string(exit_code::kHostLost) + ".\n" +
         cure_line({.cause = cause});
}

std::string lost_connection_report(const LostConnection& lost) {
  const std::string rank = "rank " + std::to_string(lost.rank) + " on host " + lost.host;
  if (lost.pid == lost.started) {
    return rank + " has lost its connection to the launcher (" + lost.how +
           ") but runs on: " + (lost.remote ? "the network between them fails, or a firewall" : "a firewall") +
           " or the process itself has ended it";
  }
  return "the connection of " + rank + " to the launcher has ended (" + lost.how +
         "), but what distrun started there (pid " + std::to_string(lost.started) +
         ") runs on: the process below it that used distrun (pid " + std::to_string(lost.pid) +
         ") has ended or has closed it" + (lost.remote ? ", or the network between them fails" : "");
}

namespace {

// Of ranks that ended because of the first cause. Empty without any.
std::string ends_of(const std::vector<Follower>& followers, bool kept_back, bool of_a_path) {
  if (followers.empty()) return {};
  std::map<std::pair<bool, std::string>, std::size_t> ends;  // by whether a signal ended it, and the text
  std::size_t ended = 0;
  for (const Follower& one : followers) {
    one.ended_by_us ? ++ended : ++ends[{one.cause.kind == CauseKind::kKilled, text_of(one.cause)}];
  }
  const std::string others = counted(followers.size(), of_a_path ? "rank" : "other rank");
  if (ends.empty()) return "the launcher ended " + others + ".";
  const auto was = [](std::size_t count) { return count == 1 ? " was " : " were "; };
  std::vector<std::string> parts;
  for (const auto& [end, count] : ends) {
    parts.push_back(std::to_string(count) + (end.first ? was(count) : " ") + end.second);
  }
  if (ended > 0) parts.push_back("the launcher ended " + std::to_string(ended));
  const auto& [first, count] = *ends.begin();
  const std::string all = parts.size() == 1 ? (first.first ? was(count) : " ") + first.second + " because of it."
                                            : " ended because of it: " + join(parts, ", ") + ".";
  return others + all + (kept_back ? " --all-errors shows their errors." : "");
}

}  // namespace

std::string follow_up_report(const std::vector<Follower>& followers, bool kept_back, bool of_a_path) {
  using Relation = Follower::Relation;
  constexpr std::size_t kMostOthers = 4;
  std::vector<Follower> following;
  std::vector<std::string> lines;
  std::size_t same = 0;
  std::size_t others = 0;
  for (const Follower& one : followers) {
    if (one.relation == Relation::kFollows) following.push_back(one);
    if (one.relation == Relation::kSame) ++same;
    if (one.relation != Relation::kOther || ++others > kMostOthers) continue;
    lines.push_back("rank " + std::to_string(one.rank) + " failed too: it " + text_of(one.cause) + ".");
  }
  if (others > kMostOthers) lines.push_back(counted(others - kMostOthers, "other rank") + " failed in other ways.");
  if (same > 0) lines.insert(lines.begin(), counted(same, "other rank") + " failed in the same way.");
  if (const std::string text = ends_of(following, kept_back, of_a_path); !text.empty()) {
    lines.push_back(lines.empty() ? text : capitalized(text));
  }
  return join(lines, "\n");
}

}  // namespace distrun::launcher
