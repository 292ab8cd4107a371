// --mpi: starts mpirun or srun, gives it the wrappers' key on standard input, and waits until the wrappers of all ranks
// have dialled in. From then on they are agents like any other.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/plan/network/network.h"
#include "launcher/plan/schedulers/mpi.h"
#include "launcher/spawn/agent_spawner.h"
#include "launcher/spawn/process.h"
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
};

class MpiStart {
 public:
  // Blocks. An error has what MPI's launcher printed.
  static Result<std::unique_ptr<MpiStart>> start(const MpiRequest& request);
  // Hands out the connections, host by host in the order of the ranks; once.
  std::unique_ptr<AgentSpawner> spawner();
  // When the wrappers have ended: waits for MPI's launcher, which then ends too, and ends it if it does not.
  void finish();

 private:
  MpiStart() = default;
  Status listen(const MpiRequest& request);
  Status launch(const MpiRequest& request, const net::JobKey& key);
  Status wait(const MpiRequest& request);
  Status give_up(const std::string& what);
  [[nodiscard]] std::string refusal(const MpiRequest& request, const net::Hello& peer) const;
  void take_errors();
  bool gone();
  bool gone_within(double seconds);

  net::JobKey key_ = net::JobKey::generate();  // the wrappers'; the job has its own
  const Log log_{"warning"};                   // of strangers
  std::unique_ptr<net::SecureListener> listener_;
  std::vector<std::string> addresses_;  // where it is reached
  Process process_;
  Fd errors_;
  std::string printed_;
  std::vector<std::string> hosts_;  // by rank
  std::vector<std::string> own_names_;
  std::map<int, std::unique_ptr<net::SecureSocket>> wrappers_;
};

}  // namespace distrun::launcher
