// Where hosts come from: -H, --hostfile, or the allocation that distrun was started in. Reads files, the machine's own
// names and nothing else; the parsing is in plan/.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/options.h"
#include "launcher/plan/hosts/hosts.h"
#include "runtime/base/environment.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

struct HostSource {
  std::vector<HostSlots> hosts;                       // empty: this machine, with as many slots as ranks
  std::vector<std::string> own_names;                 // every name by which they may mean this machine
  std::string found;                                  // a sentence about the allocation, or empty
  std::string elsewhere;                              // one about a name like this machine's that is not its, or empty
  std::string launch_with;                            // how agents start on them if not by ssh
  std::map<std::string, std::string> launch_with_of;  // the same for hosts where it is another way
  std::string more_slots;                             // how to get more of them, a half sentence, or empty
};

// kSystem: there is an allocation, but it cannot be used.
Result<HostSource> find_hosts(const Options& options, const Environment& environment);

// Of several hosts, or one that cannot be read and says so when it is used.
bool in_allocation_of_several(const Environment& environment);

// "-" is standard input.
Result<std::string> read_text(const std::string& path);

}  // namespace distrun::launcher
