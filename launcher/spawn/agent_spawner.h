// Starts the agent of one host: by fork and exec on this host, by ssh, srun or another command on other hosts. In all
// cases two pipes connect the head to the agent's standard input and output.
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

class Poller;

struct AgentHandle {
  Process process;  // the agent itself, or its carrier: the command (ssh, srun) that runs it on another host
  FramePipe pipe;
  Fd errors;            // the carrier's standard error, non-blocking; invalid for a local agent, which shares ours
  bool remote = false;  // if the host is lost, the pipe may stay open for long
  // The agent is on this machine but connected like a remote one. Values that hold only on this machine are valid
  // there.
  bool own_host = false;
};

// How the process ended that had started all agents together (MPI's launcher).
struct CarrierEnd {
  std::string name;  // "mpirun"
  int pid = 0;
  int wait_status = 0;
};

class AgentSpawner {
 public:
  virtual ~AgentSpawner() = default;
  // Does not wait for the agent to answer. `user`: from user@host, or empty.
  virtual Result<AgentHandle> start(const std::string& host, const std::string& user) = 0;
  // The ssh options that another host needs to start this agent. Null if only this machine can start it.
  [[nodiscard]] virtual const SshOptions* ssh(const std::string& host, const std::string& user) const {
    static_cast<void>(host);
    static_cast<void>(user);
    return nullptr;
  }
  // Readable when the process that has started all agents together has ended. -1: no such process, or its end is known.
  [[nodiscard]] virtual int carrier() const { return -1; }
  [[nodiscard]] virtual std::optional<CarrierEnd> carrier_end() const { return std::nullopt; }
  // Turns agents away that come when all have come. Part of the head's loop.
  virtual void watch(Poller& poller) { static_cast<void>(poller); }
};

struct SpawnOptions {
  Environment environment;             // of the local agent, and of ssh
  std::vector<std::string> own_names;  // names of this machine
  SshOptions ssh;
  std::string launch_with;  // the command that starts agents on other hosts instead of ssh, with {host} and {agent}
  std::map<std::string, std::string> launch_with_of;  // the same for hosts with another command
  std::string binary;                                 // as in agent_command(); empty: the file of this process
  const char* how = "--guard";
};

// The file that runs now, for a process on this host, even if the file on disk has been replaced since.
std::string own_executable();
// The path of the file that this process runs, for use on other hosts. If the file was replaced since, the path names
// the new file.
std::string own_binary();
// Reads what a process has printed so far and keeps the end of it in `text`. Does not block. Closes `fd` at end of
// file.
void read_last_words(Fd& fd, std::string& text, std::size_t kept = 4096);
// True for a file that this user may execute, and not for a folder.
bool executable_file(const std::string& path);
std::optional<std::string> find_in_path(const std::string& name, const Environment& environment);

// The file of this process runs as the agent on this machine, and on other hosts that have it at the same path.
std::unique_ptr<AgentSpawner> make_spawner(const SpawnOptions& options);

}  // namespace distrun::launcher
