// The launch contract: the facts about a rank that the launcher passes to it. One module does both directions: the
// launcher writes the variables, and the runtime reads them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/environment.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace distrun::net {

// What the user can do if a process has inherited the variables of a rank and is not that rank. The text does not name
// all variables that make distrun refuse such a process: --mimic and --mpi set more. Only the command distrun removes
// those.
inline constexpr const char* kHowAlone =
    "start a program that is not a rank with `distrun --no-detect -np 1 program`, or without the variables DISTRUN_*, "
    "WORLD_SIZE, TF_CONFIG and JAX_NUM_PROCESSES";

struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;  // index of this host among the hosts that have this local rank
  int cross_size = 1;
  std::string host = "localhost";  // as the user wrote it
  std::string job_id;              // empty in a job of one rank without a launcher
  std::string store;               // "address:port" of the rendezvous; empty in a job of one rank
  std::string address;             // how other hosts reach this host; empty: the local address towards the store
  std::vector<int> gpus;           // the GPUs of this rank, numbered among those it can see; empty: none, or unknown
  double host_timeout = 30;  // in seconds; the setting, for every connection to another host; not in the variables
  friend bool operator==(const World&, const World&) = default;
};

// The DISTRUN_* variables that describe `world`, without the job's key.
Environment to_environment(const World& world);

// Reads the variables back. Without any DISTRUN_* variable of a rank, the result is a job of one rank, unless
// other_launcher.h finds a larger one. Incomplete or contradictory variables are an error that names them.
Result<World> world_from_environment(const Environment& environment);

// The key of one job: 32 random bytes. Wiped on destruction, never printed.
class JobKey {
 public:
  static constexpr std::size_t kBytes = 32;
  static JobKey generate();
  // Refuses 32 zero bytes.
  static Result<JobKey> from_bytes(const unsigned char* data, std::size_t size);
  // Reads the key from the descriptor in DISTRUN_KEY_FD, which the launcher passes, and closes it. Otherwise reads the
  // file in DISTRUN_KEY_FILE, which must be a regular file of this user with mode 0600 or stricter.
  static Result<JobKey> from_environment(const Environment& environment);
  JobKey(const JobKey&) = default;
  JobKey& operator=(const JobKey&) = default;
  ~JobKey();
  // Makes the descriptor for a rank. It refers to sealed memory that only this user can open (O_PATH). If the kernel
  // does not support that, it is the memory itself. If memfd is refused (by a container's seccomp profile), it is a
  // pipe that holds the key and has no writer.
  [[nodiscard]] Result<Fd> to_descriptor() const;
  [[nodiscard]] const unsigned char* data() const { return bytes_; }

 private:
  JobKey() = default;
  [[nodiscard]] Result<Fd> to_pipe() const;
  unsigned char bytes_[kBytes] = {};
};

}  // namespace distrun::net
