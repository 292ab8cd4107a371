// All ranks of one host: starts, signals and reads them, and knows which of them have ended.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent/rank_process.h"
#include "launcher/protocol/messages.h"
#include "launcher/spawn/descendants.h"
#include "launcher/spawn/poller.h"
#include "runtime/base/fd.h"

namespace distrun::launcher {

class Ranks {
 public:
  // `key` is a sealed descriptor for this rank alone. Returns the pid of the new process.
  Result<pid_t> start(const RankPlan& plan, const RankSetting& setting, Fd key);
  void watch(Poller& poller, const RankProcess::OnOutput& on_output,
             const std::function<void(RankProcess&)>& on_exec_report);

  [[nodiscard]] bool alive() const;  // some rank has not been reaped
  // Processes of ranks that have ended because their own memory cgroup was full. Call it before they are reaped.
  [[nodiscard]] std::set<pid_t> out_of_memory() const;
  // Marks the rank of this process as ended and returns it. Null if the process is no rank.
  RankProcess* reaped(pid_t pid);
  // True if the head killed this rank alone, because the job does not need it any more.
  [[nodiscard]] bool not_needed(int rank) const { return not_needed_.contains(rank); }

  void signal(const SignalRanks& order);
  void kill();
  // Sends TERM to these ranks, or to all. True if it was sent to any.
  bool terminate(const std::set<int>& ranks, bool all);
  // Everything below this process except ranks, `except`, and what is below `except`.
  [[nodiscard]] std::vector<ProcessInfo> left_behind(const std::vector<pid_t>& except) const;

  // The process states of the ranks that have not ended, in the order of their numbers.
  [[nodiscard]] RankStates states(const AskStates& question) const;

  void add_credit(const Credit& credit);
  void resize(const Window& window);
  void add_input(const std::vector<std::byte>& bytes);
  void end_input();
  // What the head must hear about the input that was added, if there is anything new.
  std::optional<InputTaken> input_taken();
  // The same at the end, for ranks that have read only a part of it.
  std::optional<InputTaken> input_left();

  struct Drained {
    std::vector<int> ranks;  // the last output of these ranks has been read
    bool all_closed = true;  // all streams of all ranks are at end of file
  };
  // Reads the last output of ranks that have ended. `last`: no process is left that could write.
  Drained drain(const RankProcess::OnOutput& on_output, bool last);

 private:
  std::map<int, RankProcess> ranks_;  // by rank
  std::set<int> undrained_;           // ranks that have ended and may still have unread output
  std::set<int> not_needed_;
  [[nodiscard]] InputTaken input_state() const;
  std::uint64_t input_received_ = 0;         // bytes from the head
  InputTaken input_reported_{.more = true};  // the last report
};

// Why the rank could not execute its program. Nothing: it could, or this is not known yet.
std::optional<Refused> exec_fault(RankProcess& rank, const Prepare& job);

}  // namespace distrun::launcher
