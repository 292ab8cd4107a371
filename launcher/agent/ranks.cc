#include "launcher/agent/ranks.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/exit_codes.h"
#include "launcher/spawn/cgroup.h"
#include "launcher/spawn/executable.h"

namespace distrun::launcher {

Result<pid_t> Ranks::start(const RankPlan& plan, const RankSetting& setting, Fd key) {
  auto rank = RankProcess::start(plan, setting, std::move(key));
  if (!rank.ok()) return rank.status();
  return ranks_.emplace(plan.rank, *std::move(rank)).first->second.process().pid();
}

void Ranks::watch(Poller& poller, const RankProcess::OnOutput& on_output,
                  const std::function<void(RankProcess&)>& on_exec_report) {
  for (auto& [number, rank] : ranks_) {
    rank.watch(poller, on_output);
    RankProcess* const it = &rank;
    if (rank.process().exec_report() < 0) continue;
    poller.watch(rank.process().exec_report(), POLLIN, [it, on_exec_report](short) { on_exec_report(*it); });
  }
}

bool Ranks::alive() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& one) { return one.second.process().running(); });
}

std::set<pid_t> Ranks::out_of_memory() const {
  std::set<pid_t> out;
  for (const auto& [rank, process] : ranks_) {
    if (!process.process().running()) continue;
    const pid_t pid = process.process().pid();
    siginfo_t end{};
    if (::waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid != pid) continue;
    // A shell exits with 137 if its program was killed.
    const bool killed = end.si_status == (end.si_code == CLD_EXITED ? exit_code::kSignalBase + SIGKILL : SIGKILL);
    if (killed && oom_kills_of("/", pid) > 0) out.insert(pid);
  }
  return out;
}

RankProcess* Ranks::reaped(pid_t pid) {
  for (auto& [number, rank] : ranks_) {
    if (!rank.process().running() || rank.process().pid() != pid) continue;
    rank.process().reaped();
    undrained_.insert(number);
    return &rank;
  }
  return nullptr;
}

void Ranks::signal(const SignalRanks& order) {
  const auto& only = order.ranks;
  for (auto& [number, rank] : ranks_) {
    if (!only.empty() && std::find(only.begin(), only.end(), number) == only.end()) continue;
    if (!only.empty() && order.signal == SIGKILL) not_needed_.insert(number);
    order.whole_group ? rank.process().signal_group(order.signal) : rank.process().signal(order.signal);
  }
}

void Ranks::kill() {
  for (auto& [number, rank] : ranks_) rank.process().signal_group(SIGKILL);
}

bool Ranks::terminate(const std::set<int>& ranks, bool all) {
  bool any = false;
  for (auto& [number, rank] : ranks_) {
    if (!all && !ranks.contains(number)) continue;
    any = true;
    rank.process().signal_group(SIGTERM);
    // A stopped process handles TERM only after it is continued.
    rank.process().signal_group(SIGCONT);
  }
  return any;
}

std::vector<ProcessInfo> Ranks::left_behind(const std::vector<pid_t>& except) const {
  std::vector<ProcessInfo> out = descendants(except);
  std::erase_if(out, [this](const ProcessInfo& process) {
    const bool is_rank = std::any_of(ranks_.begin(), ranks_.end(), [&process](const auto& one) {
      return one.second.process().running() && one.second.process().pid() == process.pid;
    });
    return is_rank || process.state == 'Z';
  });
  return out;
}

// A shell or wrapper around the program always sleeps in wait(). So the state is that of the process in a session, if
// it is below the rank's process.
RankStates Ranks::states(const AskStates& question) const {
  RankStates out{.round = question.round};
  const ProcessTable table = read_processes();
  for (const auto& [number, rank] : ranks_) {
    if (!rank.process().running()) continue;
    pid_t pid = rank.process().pid();
    const auto session = std::find_if(question.sessions.begin(), question.sessions.end(),
                                      [it = number](const AskStates::Session& one) { return one.rank == it; });
    if (session != question.sessions.end() && is_below(session->pid, pid, table)) pid = session->pid;
    const auto found = table.find(pid);
    const char state = found == table.end() ? '?' : found->second.state;
    out.ranks.push_back({.rank = number, .pid = pid, .state = static_cast<std::uint8_t>(state)});
  }
  return out;
}

void Ranks::add_credit(const Credit& credit) {
  if (const auto rank = ranks_.find(credit.rank); rank != ranks_.end()) {
    rank->second.add_credit(credit.stream, credit.bytes);
  }
}

void Ranks::resize(const Window& window) {
  for (auto& [number, rank] : ranks_) rank.resize(window);
}

void Ranks::add_input(const std::vector<std::byte>& bytes) {
  input_received_ += bytes.size();
  for (auto& [number, rank] : ranks_) rank.add_input(bytes);
}

void Ranks::end_input() {
  for (auto& [number, rank] : ranks_) rank.end_input();
}

std::optional<InputTaken> Ranks::input_taken() {
  if (input_received_ == 0) return std::nullopt;
  const InputTaken now = input_state();
  const auto at_end = [this](std::uint64_t count, std::uint64_t known) {
    return count == input_received_ && count != known;
  };
  const bool news = now.more != input_reported_.more || at_end(now.most, input_reported_.most) ||
                    at_end(now.least, input_reported_.least);
  if (!news) return std::nullopt;
  input_reported_ = now;
  return now;
}

std::optional<InputTaken> Ranks::input_left() {
  for (auto& [number, rank] : ranks_) rank.count_input();
  const InputTaken now = input_state();
  return now.most != input_reported_.most ? std::optional(now) : std::nullopt;
}

InputTaken Ranks::input_state() const {
  InputTaken out{.least = input_received_};
  for (const auto& [number, rank] : ranks_) {
    out.most = std::max(out.most, rank.input_read());
    if (!rank.takes_input()) continue;
    out.more = true;
    out.least = std::min(out.least, rank.input_read());
  }
  return out;
}

Ranks::Drained Ranks::drain(const RankProcess::OnOutput& on_output, bool last) {
  Drained out;
  for (auto& [number, rank] : ranks_) {
    if (!undrained_.contains(number) && !last) continue;
    // No process is left that could write, so an empty pipe is at end of file.
    rank.drain(on_output, last);
    out.all_closed = out.all_closed && (!last || rank.closed());
    if (rank.drained() && undrained_.erase(number) != 0) out.ranks.push_back(number);
  }
  return out;
}

std::optional<Refused> exec_fault(RankProcess& rank, const Prepare& job) {
  const auto fault = rank.process().take_exec_report();
  if (!fault || fault->error == 0) return std::nullopt;
  const std::string who = "rank " + std::to_string(rank.rank()) + " on host " + job.host;
  const std::string what = errno_status("", fault->error).message().substr(2);
  const auto refused = [](int code, std::string text) { return Refused{.exit_code = code, .text = std::move(text)}; };
  if (fault->step == 'a') return refused(exit_code::kUnusable, who + " cannot be pinned to its cores: " + what);
  if (fault->step == 'd') {
    return refused(exit_code::kUnusable, who + " cannot enter " + job.common.cwd + ": " + what);
  }
  const std::string why = why_not_executed(rank.program(), fault->error);
  // As shells have it: 126 for a file that exists and cannot be executed, also if its interpreter is missing.
  const bool missing = why.empty() && (fault->error == ENOENT || fault->error == ENOTDIR);
  return refused(missing ? exit_code::kMissing : exit_code::kNotExecutable,
                 who + " cannot execute " + rank.program() + ": " + (why.empty() ? what : why));
}

}  // namespace distrun::launcher
