// Parses a line of PMI 1, the protocol of MPICH's process managers, which Slurm's pmi2 speaks too: "cmd=get rank=0
// ...\n". Pure. Input is checked and limited, because any program can be at the other end of an inherited descriptor.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace distrun::net {

inline constexpr std::size_t kMaxPmiLine = 4096;

// Returns the words of one line, by name. `line` has no line end. A word without '=' continues the value before it,
// because messages ("msg=key not found") are not quoted.
Result<std::map<std::string, std::string>> parse_pmi(std::string_view line);

}  // namespace distrun::net
