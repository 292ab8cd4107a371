// Starts the agent of one host: by fork and exec here, by ssh, srun or any command elsewhere. All give the same pair of
// pipes to its standard input and output.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/spawn/frames.h"
#include "launcher/spawn/process.h"
#include "launcher/spawn/remote_command.h"
#include "runtime/base/environment.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

struct AgentHandle {
  Process process;  // the agent itself, or what carries it (ssh)
  FramePipe pipe;
  Fd errors;            // standard error of what carries it, non-blocking; invalid for a local agent, which has ours
  bool remote = false;  // the pipe's end alone does not tell soon that the host is gone
  // It is remote by its connection alone: what is true on this machine only is true there.
  bool own_host = false;
};

// How that ended which had started all agents together (MPI's launcher).
struct CarrierEnd {
  std::string name;  // "mpirun"
  int pid = 0;
  int wait_status = 0;
};

class AgentSpawner {
 public:
  virtual ~AgentSpawner() = default;
  // Does not wait for the agent to answer. `user`: of user@host, or empty.
  virtual Result<AgentHandle> start(const std::string& host, const std::string& user) = 0;
  // How another host could start this agent: by ssh with these options. Null where only this machine can.
  [[nodiscard]] virtual const SshOptions* ssh(const std::string& host, const std::string& user) const {
    static_cast<void>(host);
    static_cast<void>(user);
    return nullptr;
  }
  // Readable when what has started all agents together has ended; -1: there is no such thing, or it is known already.
  [[nodiscard]] virtual int carrier() const { return -1; }
  [[nodiscard]] virtual std::optional<CarrierEnd> carrier_end() const { return std::nullopt; }
};

struct SpawnOptions {
  Environment environment;             // of the local agent, and of ssh
  std::vector<std::string> own_names;  // that mean this machine
  SshOptions ssh;
  std::string launch_with;  // how agents of other hosts start instead of by ssh, with {host} and {agent}
  std::map<std::string, std::string> launch_with_of;  // the same for hosts where it is another way
  std::string binary;                                 // as in agent_command(); empty: this very file
  const char* how = "--guard";
};

// The file that this process runs, as others could run it; of a file that was replaced since, the new one.
std::string own_binary();
// What a process has printed, as far as it has: the end of it is kept in `text`. Does not block; closes at the end of
// file.
void read_last_words(Fd& fd, std::string& text, std::size_t kept = 4096);
std::optional<std::string> find_in_path(const std::string& name, const Environment& environment);

// This very binary runs as the agent of this machine, and on other hosts if it lies at the same path there.
std::unique_ptr<AgentSpawner> make_spawner(const SpawnOptions& options);

}  // namespace distrun::launcher
