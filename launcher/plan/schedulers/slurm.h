// Slurm's part of allocation.h.
#pragma once

#include "launcher/plan/schedulers/allocation.h"

namespace distrun::launcher {

// "2(x3),1": one number per host, in the order of the job's hostlist. `where` names the text in errors.
Result<std::vector<int>> parse_slurm_counts(const std::string& text, const std::string& where);

// sbatch and salloc tell by variables what the job was asked for with, and srun reads these as its own options: the
// step of an agent, one task for all ranks of a host, would be refused, or get one task's share. This is without them,
// and without what is true on this host only; the job itself (SLURM_JOB_ID) stays.
Environment environment_of_steps(const Environment& environment);

Result<std::optional<Allocation>> slurm_allocation(const Environment& environment);

// The first component of a heterogeneous job that has all of these hosts, as srun's --het-group counts; 0 too where the
// job is none. Nothing where no component has all.
Result<std::optional<int>> component_of(const Environment& environment, const std::vector<std::string>& hosts);

}  // namespace distrun::launcher
