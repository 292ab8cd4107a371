// Shared memory and daemon folders that Open MPI leaves on a host when its processes are killed: which names belong to
// one job, and their removal. MPICH removes its shared memory as soon as its ranks have opened it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/environment.h"

namespace distrun::launcher {

// One job of Open MPI on one host.
struct OpenMpiJob {
  // A number belongs to this job if the bits of its mask have this value. Processes that the ranks spawn form another
  // job of the same family.
  struct Number {
    std::uint32_t value = 0;
    std::uint32_t mask = 0;
    bool operator==(const Number&) const = default;
  };
  std::vector<Number> numbers;
  std::string host;  // the host name of this machine
  uid_t user = 0;
  std::string folder{};  // the daemon's folder; empty: no folder that may be removed

  [[nodiscard]] bool owns(std::uint32_t number) const;
};

// The numbers of a PMIx namespace: "1490419713" (Open MPI 4), "prterun-host-42@1" (Open MPI 5), "slurm.pmix.7.0".
std::vector<OpenMpiJob::Number> numbers_of_namespace(std::string_view name);
// `environment` is that of a rank. None: the rank was not started by Open MPI.
std::optional<OpenMpiJob> open_mpi_job(const Environment& environment, const std::string& host, uid_t user);

// True if the name is shared memory of that job: "vader_segment.h1.0.58d60001.2", "sm_segment...", "osc_sm...".
// `node_rank`: only that rank's.
bool is_shared_memory_of(const OpenMpiJob& job, std::string_view name, std::optional<int> node_rank);
// The pid of the daemon that owns this folder, from "ompi.h1.0/pid.42" or "ompi.42". None: the name has another form.
std::optional<pid_t> daemon_of_folder(std::string_view folder, const std::string& host, uid_t user);

// Removes the shared memory of that job, or only that of one rank.
void remove_shared_memory(const OpenMpiJob& job, std::optional<int> node_rank,
                          const std::string& directory = "/dev/shm");
// Removes the daemon's folder, and then its parent, which the jobs of one user share, if that is empty.
void remove_daemon_folder(const OpenMpiJob& job);
// For daemons of this host that have ended, mpirun included: removes their folders and the shared memory of their jobs.
// `base` is where Open MPI creates its folders.
void remove_leftovers_of(const std::set<pid_t>& daemons, const std::string& host, uid_t user, const std::string& base,
                         const std::string& directory = "/dev/shm");
// The directory where Open MPI creates its folders.
std::string open_mpi_base(const Environment& environment);

}  // namespace distrun::launcher
