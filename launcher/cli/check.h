// `distrun check`: what this machine and this installation have, or, with hosts named, whether those fit together.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"
#include "runtime/base/environment.h"

namespace distrun::launcher {

// `arguments` behind the word check. Prints; returns the exit code.
int check_main(const std::vector<std::string>& arguments, const Environment& environment);

// Whether they are about hosts: those that they name, or without any word about this machine alone (--build,
// --no-detect) those of the allocation.
bool checks_hosts(const std::vector<std::string>& arguments, const Environment& environment);

// The job that checks them: one rank on each host runs distrun.host_check.
ParseOutcome host_check_job(const std::vector<std::string>& arguments);

}  // namespace distrun::launcher
