// `distrun check` without hosts shows what this machine and this installation have. With hosts it checks whether they
// fit together.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"
#include "runtime/base/environment.h"

namespace distrun::launcher {

// `arguments` are the words after "check". Prints the answer and returns the exit code.
int check_main(const std::vector<std::string>& arguments, const Environment& environment);

// True if the check is about hosts. The arguments may name them. Without any word that limits the check to this machine
// (--build, --no-detect), an allocation of several hosts gives them.
bool checks_hosts(const std::vector<std::string>& arguments, const Environment& environment);

// The job of such a check: one rank on each host runs distrun.host_check.
ParseOutcome host_check_job(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace distrun::launcher
