// The allocation that distrun was started in, as its scheduler tells it: Slurm, PBS, LSF, Grid Engine, the hostfile of
// the Kubernetes MPI operator, and the default hostfiles of Open MPI, MPICH and Intel MPI. Pure: the environment and a
// reader of files in, hosts or a reason why not out. Flux has no host list in its environment; docs/launch.md has the
// command.
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
  std::string slots_are;    // "one per task"; empty where hosts have none
  std::string own_name;     // what the scheduler calls this machine, if it says so
  std::string more_slots;   // how to get more of them, a half sentence
  std::string launch_with;  // how a program starts on one of the hosts (--launch-with); empty: by ssh
  std::map<std::string, std::string> launch_with_of;  // the same for hosts where it is another way
  std::string advice;               // for who says nothing of how to reach the hosts, a half sentence, or empty
  std::vector<std::string> beside;  // reached in the same way if they are named, as the whole job of a step
  friend bool operator==(const Allocation&, const Allocation&) = default;
};

// The text of a file, or a status that names it.
using ReadFile = std::function<Result<std::string>(const std::string& path)>;

// Nothing outside of an allocation; kSystem where there is one that cannot be read, naming the variable and the cure.
Result<std::optional<Allocation>> detect_allocation(const Environment& environment, const ReadFile& read_file);

// How agents come to hosts that the user has named inside an allocation: as to the allocation's own if all are in it.
struct Reach {
  std::string launch_with;  // as in Allocation
  std::map<std::string, std::string> launch_with_of;
  std::string note;  // why not so, a sentence for the user, or empty
};
// `own_names` mean this machine, which needs nothing.
Reach reach_of_named(const Allocation& allocation, const std::vector<HostSlots>& hosts,
                     const std::vector<std::string>& own_names);

// One sentence about what was found.
std::string found_text(const Allocation& allocation);

}  // namespace distrun::launcher
