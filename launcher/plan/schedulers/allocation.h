// The allocation that distrun was started in: Slurm, PBS, LSF, Grid Engine, the hostfile of the Kubernetes MPI
// operator, and the default hostfiles of Open MPI, MPICH and Intel MPI. Pure: takes the environment and a reader of
// files, and returns hosts or an error. Flux has no host list in its environment; docs/reference/hosts.md has the
// command for it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/hosts/hosts.h"
#include "runtime/base/environment.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

struct Allocation {
  std::string source;  // "Slurm job 4711"
  std::vector<HostSlots> hosts;
  std::string slots_are;                              // "one per task"; empty if hosts have no slot counts
  std::string own_name;                               // the scheduler's name for this machine, if known
  std::string more_slots;                             // half a sentence on how to get more slots
  std::string launch_with;                            // how to start a program on a host (--launch-with); empty: ssh
  std::map<std::string, std::string> launch_with_of;  // per host, where the command differs
  // Half a sentence for users who do not say how to reach the hosts; or empty.
  std::string advice;
  // More hosts that are reached in the same way if the user names them: the whole job, if this is a step.
  std::vector<std::string> beside;
  friend bool operator==(const Allocation&, const Allocation&) = default;
};

// Returns the text of a file, or a status that names the file.
using ReadFile = std::function<Result<std::string>(const std::string& path)>;

// Returns nothing outside of an allocation. Returns kSystem for an allocation that cannot be read, with the variable
// and the cure.
Result<std::optional<Allocation>> detect_allocation(const Environment& environment, const ReadFile& read_file);

// How agents start on hosts that the user has named inside an allocation. If all of them belong to it, they start in
// its way.
struct Reach {
  std::string launch_with;  // as in Allocation
  std::map<std::string, std::string> launch_with_of;
  std::string note;  // a sentence for the user why that does not work, or empty
};
// `own_names` are names of this machine, where no remote start is needed.
Reach reach_of_named(const Allocation& allocation, const std::vector<HostSlots>& hosts,
                     const std::vector<std::string>& own_names);

// One sentence on the allocation that was found.
std::string found_text(const Allocation& allocation);

}  // namespace distrun::launcher
