// A process between the launcher and MPI's launcher. It outlives both: it ends what MPI's launcher has started, in
// whatever session, and removes what that leaves behind, also when the launcher is killed.
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

// Open MPI's `--stdin all` leaves out the ranks on mpirun's own host. These have mpirun for a parent, which holds the
// key as sealed memory at this number; it hands on no descriptor itself.
inline constexpr int kKeyOfParent = 3;

// The launcher's end.
class MpiGuard {
 public:
  MpiGuard() = default;
  // Starts the guard, which starts this.
  static Result<MpiGuard> start(const ProcessSpec& mpi);

  // Readable when there is news.
  [[nodiscard]] int fd() const { return control_.get(); }
  // Once MPI's launcher has ended, or this guard, which takes it along.
  [[nodiscard]] const std::optional<CarrierEnd>& ended();
  // All ranks have come: the guard looks which processes belong to MPI's launcher.
  void all_here() { order('h'); }
  // MPI's launcher is about to end by itself.
  void finish() { order('f'); }
  // It is to end now.
  void terminate() { order('t'); }
  // At once.
  void kill() { order('k'); }
  // The guard is gone, and so is all that it guarded.
  [[nodiscard]] bool gone();
  // What a guard that was killed could not remove, once nothing of MPI's launcher runs any more.
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

// The guard itself: `words` are the program and the arguments of MPI's launcher. Returns the exit code.
int mpi_guard_main(const std::vector<std::string>& words, const Environment& environment);

}  // namespace distrun::launcher
