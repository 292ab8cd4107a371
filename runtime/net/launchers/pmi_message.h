// A line of PMI 1, the protocol of MPICH's process managers, which Slurm's pmi2 speaks too: "cmd=get rank=0 ...\n".
// Pure; what comes is bounded and checked, for the other end of an inherited descriptor can be anything.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace distrun::net {

inline constexpr std::size_t kMaxPmiLine = 4096;

// The words of one line without its end, by name. A word without '=' continues the value before it: messages ("msg=key
// not found") are not quoted.
Result<std::map<std::string, std::string>> parse_pmi(std::string_view line);

}  // namespace distrun::net
