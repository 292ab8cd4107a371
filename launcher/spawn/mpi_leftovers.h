// What Open MPI leaves on a host when its processes are killed: shared memory, and its daemon's folder. Which names
// belong to one job, and their removal. MPICH removes its own as soon as its ranks have found it.
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
  // The number of a job that belongs to it has one of these values in the bits of its mask: what the ranks spawn is
  // another job of the same family.
  struct Number {
    std::uint32_t value = 0;
    std::uint32_t mask = 0;
    bool operator==(const Number&) const = default;
  };
  std::vector<Number> numbers;
  std::string host;  // as this machine is called
  uid_t user = 0;
  std::string folder{};  // of the daemon that started the ranks here; empty: it has none that is ours to remove

  [[nodiscard]] bool owns(std::uint32_t number) const;
};

// Of a namespace as PMIx names it: "1490419713" (Open MPI 4), "prterun-host-42@1" (Open MPI 5), "slurm.pmix.7.0".
std::vector<OpenMpiJob::Number> numbers_of_namespace(std::string_view name);
// `environment` is that of a rank; none: it is none of Open MPI's.
std::optional<OpenMpiJob> open_mpi_job(const Environment& environment, const std::string& host, uid_t user);

// True if this is shared memory of that job: "vader_segment.h1.0.58d60001.2", "sm_segment...", "osc_sm...".
// `node_rank`: only of that rank.
bool is_shared_memory_of(const OpenMpiJob& job, std::string_view name, std::optional<int> node_rank);
// The process whose folder this is, for "ompi.h1.0/pid.42" and "ompi.42"; none: it is not called so.
std::optional<pid_t> daemon_of_folder(std::string_view folder, const std::string& host, uid_t user);

// Removes the shared memory of that job, or that of one rank.
void remove_shared_memory(const OpenMpiJob& job, std::optional<int> node_rank,
                          const std::string& directory = "/dev/shm");
// Removes the daemon's folder, and the one above it that the jobs of one user share, if it is empty then.
void remove_daemon_folder(const OpenMpiJob& job);
// The same for processes of this host that have ended, one of them mpirun, and their jobs' shared memory. `base` is
// where Open MPI makes its folders.
void remove_leftovers_of(const std::set<pid_t>& daemons, const std::string& host, uid_t user, const std::string& base,
                         const std::string& directory = "/dev/shm");
// Where Open MPI makes its folders.
std::string open_mpi_base(const Environment& environment);

}  // namespace distrun::launcher
