// A process between distrun's launcher and MPI's launcher. It outlives both, also when distrun's launcher is killed. It
// ends all processes that MPI's launcher has started, in any session, and removes the files that they leave.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/spawn/agent_spawner.h"
#include "launcher/spawn/process.h"
#include "runtime/base/environment.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// Open MPI's `--stdin all` leaves out the ranks on mpirun's own host. mpirun is the parent of these ranks. It holds the
// key as sealed memory at this descriptor number, and it does not pass on the descriptor.
inline constexpr int kKeyOfParent = 3;

// The guard as distrun's launcher sees it.
class MpiGuard {
 public:
  MpiGuard() = default;
  // Starts the guard, which starts `mpi`.
  static Result<MpiGuard> start(const ProcessSpec& mpi);

  // Readable when the guard has sent a message.
  [[nodiscard]] int fd() const { return control_.get(); }
  // How MPI's launcher ended, once it has. If the guard itself ends, MPI's launcher ends with it.
  [[nodiscard]] const std::optional<CarrierEnd>& ended();
  // All ranks have connected: the guard records which processes belong to MPI's launcher.
  void all_here() { order('h'); }
  // Tells the guard that MPI's launcher is about to end by itself.
  void finish() { order('f'); }
  // The same, but a host is lost: MPI's launcher would wait for that host, so it is ended soon.
  void finish_without_host() { order('l'); }
  // Asks it to end now.
  void terminate() { order('t'); }
  // Kills it at once.
  void kill() { order('k'); }
  // True if the guard has ended, and with it all processes below it.
  [[nodiscard]] bool gone();
  // Removes what a killed guard left. Call it when no process of MPI's launcher runs any more.
  void clean_up_if_killed(const Environment& environment);
  [[nodiscard]] const Process& process() const { return process_; }

 private:
  void order(char word);

  Process process_;
  Fd control_;
  std::string name_;
  pid_t mpi_ = 0;
  bool killed_ = false;
  std::optional<CarrierEnd> end_;
};

// The main function of the guard. `words`: the program and the arguments of MPI's launcher. Returns the exit code.
int mpi_guard_main(const std::vector<std::string>& words, const Environment& environment);

}  // namespace distrun::launcher
