// The launch contract: what a rank is told about itself. One module writes it (launcher) and reads it (runtime).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/environment.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace distrun::net {

// For a process with the variables of a rank that it is not. The launcher sets others too, with which it would be
// refused; what --mimic and --mpi set, only distrun takes away.
inline constexpr const char* kHowAlone =
    "start what is to be alone as `distrun --no-detect -np 1 program`, or without the variables DISTRUN_*, WORLD_SIZE, "
    "TF_CONFIG and JAX_NUM_PROCESSES";

struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;  // index of this host among those that have this local rank
  int cross_size = 1;
  std::string host = "localhost";  // as the user named it
  std::string job_id;              // empty in a world of one that no launcher started
  std::string store;               // "address:port" of the rendezvous; empty in a world of one
  std::string address;             // this host's, as the other hosts reach it; empty: the one that leads to the store
  std::vector<int> gpus;           // this rank's own, numbered among those that it sees; empty: none, or not told
  double host_timeout = 30;  // seconds; the setting, which every connection to another host needs; not in variables
  friend bool operator==(const World&, const World&) = default;
};

// The DISTRUN_* variables that describe `world`. The job's key is not among them.
Environment to_environment(const World& world);

// Reads the variables back. Without any of ours: a world of one, unless other_launcher.h finds one. Incomplete or
// contradictory variables are an error that names them.
Result<World> world_from_environment(const Environment& environment);

// 32 random bytes per job; wiped on destruction, never printed.
class JobKey {
 public:
  static constexpr std::size_t kBytes = 32;
  static JobKey generate();
  static Result<JobKey> from_bytes(const unsigned char* data, std::size_t size);
  // Reads the key from the descriptor that the launcher hands down (DISTRUN_KEY_FD), and closes it; or from
  // DISTRUN_KEY_FILE, which must be a regular file of this user with mode 0600 or stricter.
  static Result<JobKey> from_environment(const Environment& environment);
  JobKey(const JobKey&) = default;
  JobKey& operator=(const JobKey&) = default;
  ~JobKey();
  // What a rank is handed: sealed memory, or where memfd is refused (a container's seccomp profile) a pipe that holds
  // the key and has no writer.
  [[nodiscard]] Result<Fd> to_descriptor() const;
  [[nodiscard]] const unsigned char* data() const { return bytes_; }

 private:
  JobKey() = default;
  [[nodiscard]] Result<Fd> to_pipe() const;
  unsigned char bytes_[kBytes] = {};
};

}  // namespace distrun::net
