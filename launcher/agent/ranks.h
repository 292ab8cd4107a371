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
  // `key` is this rank's own sealed descriptor. Returns the new process.
  Result<pid_t> start(const RankPlan& plan, const RankSetting& setting, Fd key);
  void watch(Poller& poller, const RankProcess::OnOutput& on_output,
             const std::function<void(RankProcess&)>& on_exec_report);

  [[nodiscard]] bool alive() const;  // some rank has not been reaped
  // The rank whose process this was, which counts as ended from now on; null: none.
  RankProcess* reaped(pid_t pid);
  // It was ended because the job needs it no more.
  [[nodiscard]] bool dismissed(int rank) const { return dismissed_.contains(rank); }

  void signal(const SignalRanks& order);
  void kill();
  // These, or all: TERM. True if there was one.
  bool terminate(const std::set<int>& ranks, bool all);
  // Everything below this process that is not a rank itself nor one of `except`.
  [[nodiscard]] std::vector<ProcessInfo> left_behind(const std::vector<pid_t>& except) const;

  // How the processes of those that have not ended are, in the order of their numbers.
  [[nodiscard]] RankStates states(const AskStates& question) const;

  void add_credit(const Credit& credit);
  void resize(const Window& window);
  void add_input(const std::vector<std::byte>& bytes);
  void end_input();
  // Once, when all ranks have taken the input that has come.
  std::optional<InputTaken> input_taken();

  struct Drained {
    std::vector<int> ranks;  // the last output of these has been read
    bool all_closed = true;  // all ranks' streams are at their end
  };
  // Reads the last output of ranks that have ended. `last`: no process is left that could write.
  Drained drain(const RankProcess::OnOutput& on_output, bool last);

 private:
  std::map<int, RankProcess> ranks_;  // by rank
  std::set<int> undrained_;           // have ended, but their last output may not be complete
  std::set<int> dismissed_;
  bool input_pending_ = false;
};

// Why the rank could not run its program, once it is known; nothing: it can, or it is not known yet.
std::optional<Refused> exec_fault(RankProcess& rank, const Prepare& job);

}  // namespace distrun::launcher
