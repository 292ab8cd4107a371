// --mpi: starts mpirun or srun, gives it the wrappers' key on standard input, and waits until the wrappers of all ranks
// have dialled in. From then on they are agents like any other.
#pragma once

#include <sys/types.h>

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
  std::vector<std::string> own_names;  // that mean this machine
  NetworkFilter network;
  bool several_machines = false;
  Duration limit = std::chrono::seconds(60);  // until all wrappers have come
  std::optional<TimePoint> end_by;            // when --timeout is over
  int preempt_signal = 0;                     // 0: none
};

class MpiStart {
 public:
  explicit MpiStart(const MpiRequest& request);
  // Blocks until all wrappers have come. kInterrupted: a signal asks for the end, and ended_by() is its number.
  // kTimeout: --timeout is over. Any other error has what MPI's launcher printed. After each of them nothing that was
  // started is left.
  Status start();
  [[nodiscard]] int ended_by() const { return ended_by_; }
  // Hands out the connections, host by host in the order of the ranks; once.
  std::unique_ptr<AgentSpawner> spawner();
  // When the wrappers have ended: waits for MPI's launcher, which then ends too, and ends it if it does not. A signal
  // that asks for the end makes it soon.
  void finish();

 private:
  Status listen();
  Status launch();
  Status write_key(const Fd& input);
  Status wait();
  Status give_up(const std::string& what);
  // The reason to give up that signals and --timeout are.
  std::optional<Status> called_off(TimePoint now);
  [[nodiscard]] std::string refusal(const net::Hello& peer) const;
  [[nodiscard]] std::string who_has_come() const;
  void take_errors();
  void take_signals();
  void end_all();

  const MpiRequest request_;
  net::JobKey key_ = net::JobKey::generate();  // the wrappers'; the job has its own
  const Log log_{"warning"};                   // of strangers
  std::unique_ptr<net::SecureListener> listener_;
  std::vector<std::string> addresses_;  // where it is reached
  // They stay blocked afterwards, for the job to take.
  std::optional<SignalSource> signals_;
  std::vector<pid_t> not_ours_;  // children that this process had before
  MpiGuard guard_;
  Fd errors_;
  std::string printed_;
  std::vector<std::string> hosts_;  // by rank
  std::map<int, std::unique_ptr<net::SecureSocket>> wrappers_;
  int ended_by_ = 0;
};

}  // namespace distrun::launcher
