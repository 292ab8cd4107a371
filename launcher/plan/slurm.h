// Slurm's part of allocation.h.
#pragma once

#include "launcher/plan/allocation.h"

namespace distrun::launcher {

// "2(x3),1": one number per host, in the order of the job's hostlist. `where` names the text in errors.
Result<std::vector<int>> parse_slurm_counts(const std::string& text, const std::string& where);

Result<std::optional<Allocation>> slurm_allocation(const Environment& environment);

}  // namespace distrun::launcher
