// --mpi: starts mpirun or srun, which starts one wrapper for each rank (launcher/agent/mpi_wrapper.h). Writes the
// wrappers' key to its standard input, and waits until all wrappers have connected. After that they are agents like any
// other.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/network/network.h"
#include "launcher/plan/schedulers/mpi.h"
#include "launcher/spawn/agent_spawner.h"
#include "launcher/spawn/mpi_guard.h"
#include "launcher/spawn/signals.h"
#include "runtime/base/log.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::launcher {

struct MpiRequest {
  MpiStarter starter = MpiStarter::kMpirun;
  Assignment assignment;  // by host
  Environment environment;
  std::vector<std::string> own_names;  // names of this machine
  NetworkFilter network;
  bool several_machines = false;
  Duration limit = std::chrono::seconds(60);  // until all wrappers have connected
  bool keep_trying = false;                   // until then, start MPI's launcher again if it cannot reach a host yet
  std::function<void(const std::string&)> print = [](const std::string&) {};  // a line for the user
  std::optional<TimePoint> end_by;                                            // when --timeout is over
  int preempt_signal = 0;                                                     // 0: none
  bool as_root = false;                                                       // as in mpi_argv()
};

class MpiStart {
 public:
  explicit MpiStart(const MpiRequest& request);
  // Blocks until all wrappers have connected. kInterrupted: a signal asks for the end; ended_by() is its number.
  // kTimeout: --timeout has passed. Any other error contains the output of MPI's launcher. After an error, no process
  // that was started is left.
  Status start();
  [[nodiscard]] int ended_by() const { return ended_by_; }
  // Returns the connections, host by host in the order of the ranks. Call it once.
  std::unique_ptr<AgentSpawner> spawner();
  // Call it when the wrappers have ended. Waits for MPI's launcher, which then ends too, and ends it if it does not. A
  // signal that asks for the end shortens the wait. `host_lost`: MPI's launcher waits for a host that was given up.
  void finish(bool host_lost);

 private:
  Status listen();
  Status launch();
  Status write_key(const Fd& input);
  Status start_all(TimePoint deadline);
  Status wait(TimePoint deadline);
  Status pause(TimePoint until);
  Status give_up(const std::string& what);
  // The reason to give up, if a signal came or --timeout has passed.
  std::optional<Status> called_off(TimePoint now);
  [[nodiscard]] std::string refusal(const net::Hello& peer) const;
  [[nodiscard]] std::string who_has_come() const;
  void take_errors();
  void take_signals();
  void end_all();
  void wait_for_guard();

  const MpiRequest request_;
  net::JobKey key_ = net::JobKey::generate();  // the wrappers' key; the job has another one
  const Log log_{"warning"};                   // warnings about unknown peers
  std::unique_ptr<net::SecureListener> listener_;
  std::vector<std::string> addresses_;  // the addresses of the listener
  // The signals stay blocked afterwards, and the job reads them.
  std::optional<SignalSource> signals_;
  std::vector<pid_t> existing_children_;  // children that this process had before
  MpiGuard guard_;
  Fd errors_;
  std::string printed_;
  std::vector<std::string> hosts_;  // by rank
  std::map<int, std::unique_ptr<net::SecureSocket>> wrappers_;
  int ended_by_ = 0;
};

}  // namespace distrun::launcher
