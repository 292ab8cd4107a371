// `distrun check`: what this machine and this installation have, or, with hosts named, whether those fit together.
#pragma once

#include <string>
#include <vector>

namespace distrun::launcher {

// `arguments` behind the word check. Prints; returns the exit code.
int check_main(const std::vector<std::string>& arguments);

// Whether they are about hosts: anything but check_main's own options is.
bool checks_hosts(const std::vector<std::string>& arguments);

// The arguments of the job that checks them: one rank on each host runs distrun.host_check.
std::vector<std::string> host_check_job(const std::vector<std::string>& arguments);

}  // namespace distrun::launcher
