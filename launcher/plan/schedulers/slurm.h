// The Slurm part of allocation.h.
#pragma once

#include "launcher/plan/schedulers/allocation.h"

namespace distrun::launcher {

// Parses "2(x3),1": one number per host, in the order of the job's hostlist. `where` names the text in errors.
Result<std::vector<int>> parse_slurm_counts(const std::string& text, const std::string& where);

// The environment for srun. sbatch, salloc and users set variables that srun reads as its own options. An agent's step,
// with one task for all ranks of a host, would then be refused or get the share of one task. This keeps only those of
// Slurm's variables that name the job and the cluster, because each version of Slurm has other options. It also removes
// variables that are true on this host only.
Environment environment_of_steps(const Environment& environment);

// True for a process of a Slurm job. scancel can send a signal to all of them, also to the ranks.
bool in_slurm_job(const Environment& environment);

Result<std::optional<Allocation>> slurm_allocation(const Environment& environment);

// The first component of a heterogeneous job that has all of these hosts, numbered as in srun's --het-group. 0 if the
// job is not heterogeneous. Returns nothing if no component has all of them.
Result<std::optional<int>> component_of(const Environment& environment, const std::vector<std::string>& hosts);

}  // namespace distrun::launcher
