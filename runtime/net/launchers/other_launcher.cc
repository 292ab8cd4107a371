#include "runtime/net/launchers/other_launcher.h"

#include <array>
#include <charconv>
#include <string_view>

namespace distrun::net {
namespace {

constexpr int kMaxTasks = 1 << 24;

// The variables that contain a launcher's rank and size. If two families are set, the earlier one in the table belongs
// to the inner launcher: mpirun and mpiexec run inside Slurm's steps, not the other way round.
struct Family {
  const char* rank;
  const char* size;
};
constexpr std::array<Family, 3> kFamilies{{{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}}};
constexpr const Family& kSlurm = kFamilies[2];
constexpr const char* kTorchSize = "WORLD_SIZE";

constexpr const char* kCure =
    ". Start the program with `distrun -np N program`. Or start it directly with srun or mpirun, and let nothing "
    "change its variables";

std::string variable_text(const Environment& environment, const char* variable) {
  const auto found = environment.find(variable);
  return found == environment.end() ? std::string() : found->second;
}

std::string shown(const Environment& environment, const char* variable) {
  return std::string(variable) + "=" + variable_text(environment, variable);
}

Status refuse(const std::string& what) { return {Errc::kInvalidArgument, what}; }

// An absent and an empty variable both return nothing.
Result<std::optional<int>> number(const Environment& environment, const char* variable) {
  const std::string text = variable_text(environment, variable);
  if (text.empty()) return std::optional<int>();
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMaxTasks) {
    return refuse(shown(environment, variable) + " is not a number of tasks" + kCure);
  }
  return std::optional<int>(value);
}

struct Stated {
  const Family* family = nullptr;
  std::optional<int> rank;
  std::optional<int> size;
  [[nodiscard]] bool several() const { return size.value_or(0) > 1; }
};

Result<Stated> read(const Environment& environment, const Family& family) {
  Stated out{.family = &family};
  const auto rank = number(environment, family.rank);
  if (!rank.ok()) return rank.status();
  const auto size = number(environment, family.size);
  if (!size.ok()) return size.status();
  out.rank = *rank;
  out.size = *size;
  if (!out.size && out.rank.value_or(0) > 0 && &family != &kSlurm) {
    return refuse(shown(environment, family.rank) + " is set by another launcher, but " + family.size + " is missing" +
                  kCure);
  }
  if (!out.several()) return out;
  if (!out.rank) {
    return refuse(shown(environment, family.size) + " is set by another launcher, but " + family.rank + " is missing" +
                  kCure);
  }
  if (*out.rank < *out.size) return out;
  return refuse(shown(environment, family.rank) + " is not below " + shown(environment, family.size) + kCure);
}

// `outer` is the outer launcher's family if its variables can be removed without changing those of the inner one, else
// null.
Status contradiction(const Environment& environment, const char* one, const char* other, const Family* outer) {
  const std::string without = outer == nullptr ? std::string("Start")
                                               : "Remove the variables of the outer launcher (`env -u " +
                                                     std::string(outer->rank) + " -u " + outer->size + "`), or start";
  return refuse(shown(environment, one) + " and " + shown(environment, other) +
                " come from two launchers, and it is not clear which of them started the ranks. " + without +
                " the program with `distrun -np N program`");
}

Status agree(const Environment& environment, const Stated& chosen, const Stated& other) {
  if (chosen.size != other.size) {
    return contradiction(environment, chosen.family->size, other.family->size, other.family);
  }
  if (other.rank && chosen.rank != other.rank) {
    return contradiction(environment, chosen.family->rank, other.family->rank, other.family);
  }
  return {};
}

// Returns the innermost family with several tasks. An inner family with one task contradicts it. An outer family with
// one task does not: `srun --pty bash` is one task, and the user may type mpirun there.
Result<std::optional<Stated>> choose(const Environment& environment, bool& any) {
  std::optional<Stated> chosen;
  const char* single = nullptr;
  for (const Family& family : kFamilies) {
    const auto stated = read(environment, family);
    if (!stated.ok()) return stated.status();
    any = any || stated->size.has_value();
    if (!stated->several()) {
      if (stated->size && !chosen && single == nullptr) single = family.size;
      continue;
    }
    // It is not clear which one is the inner launcher. Without the variables of the larger one, each task would be a
    // job of one rank.
    if (single != nullptr) return contradiction(environment, single, family.size, nullptr);
    if (!chosen) {
      chosen = *stated;
    } else if (&family != &kSlurm) {
      DISTRUN_RETURN_IF_ERROR(agree(environment, *chosen, *stated));
    }
  }
  return chosen;
}

Status no_exchange(const Environment& environment, const Family& family) {
  const std::string seen = shown(environment, family.size) + ": another launcher started several tasks, but ";
  if (&family == &kSlurm) {
    return refuse(
        seen +
        "they cannot find each other (neither PMIX_RANK nor PMI_FD is set). Use `srun --mpi=pmi2` or `srun "
        "--mpi=pmix`; `srun --mpi=list` shows which one exists. Or type `distrun program` inside the allocation, "
        "without srun");
  }
  if (!variable_text(environment, "PMI_PORT").empty()) {
    return refuse(seen + "distrun cannot use PMI over a port (" + shown(environment, "PMI_PORT") +
                  "). Leave out the option -pmi-port of mpiexec, or start the program with `distrun -np N program`");
  }
  return refuse(seen + "they cannot find each other (neither PMIX_RANK with PMIX_NAMESPACE nor PMI_FD is set)" + kCure);
}

Result<std::optional<OtherLauncher>> with_exchange(const Environment& environment, const Stated& stated) {
  OtherLauncher out{.rank = *stated.rank, .size = *stated.size};
  const auto pmix_rank = number(environment, "PMIX_RANK");
  if (!pmix_rank.ok()) return pmix_rank.status();
  const auto pmi_fd = number(environment, "PMI_FD");
  if (!pmi_fd.ok()) return pmi_fd.status();
  const std::string name_space = variable_text(environment, "PMIX_NAMESPACE");
  const bool is_pmi = stated.family == &kFamilies[1];
  if (*pmix_rank && !name_space.empty() && !(is_pmi && *pmi_fd)) {
    if (**pmix_rank != out.rank) {
      return contradiction(environment, stated.family->rank, "PMIX_RANK", nullptr);
    }
    out.job = name_space;
    return std::optional<OtherLauncher>(out);
  }
  if (!*pmi_fd || !is_pmi) return no_exchange(environment, *stated.family);
  out.exchange = OtherLauncher::Exchange::kPmi;
  out.pmi_fd = **pmi_fd;
  out.job = variable_text(environment, "PMI_JOBID");
  return std::optional<OtherLauncher>(out);
}

// A launcher that offers only PMIx gives the rank in its variables, but never the size.
Result<std::optional<OtherLauncher>> pmix_alone(const Environment& environment) {
  const auto rank = number(environment, "PMIX_RANK");
  if (!rank.ok()) return rank.status();
  if (!*rank) return std::optional<OtherLauncher>();
  const std::string name_space = variable_text(environment, "PMIX_NAMESPACE");
  if (!name_space.empty()) return std::optional<OtherLauncher>({.rank = **rank, .size = 0, .job = name_space});
  if (**rank == 0) return std::optional<OtherLauncher>();
  return refuse(shown(environment, "PMIX_RANK") + " is set by another launcher, but PMIX_NAMESPACE is missing" + kCure);
}

// torchrun and similar launchers leave the rendezvous to the program, so distrun has no exchange to join with. The name
// WORLD_SIZE is very common: a value that is not a number belongs to other software.
Status refuse_torch(const Environment& environment, const std::optional<OtherLauncher>& found) {
  const auto read = number(environment, kTorchSize);
  const int size = read.ok() ? read->value_or(1) : 1;
  if (size <= 1) return {};
  if (!found) {
    return refuse("start the program with `distrun -np N program`: " + shown(environment, kTorchSize) +
                  " is set, but the DISTRUN_* variables are missing, so each process would be rank 0 of 1. To run one "
                  "process alone, unset " +
                  kTorchSize + ", TF_CONFIG and JAX_NUM_PROCESSES");
  }
  if (found->size != 0 && size != found->size) {
    return refuse(shown(environment, kTorchSize) + " differs from the " + std::to_string(found->size) +
                  " tasks of srun or mpirun. Use only one launcher: `distrun -np N program`, or no torchrun under the "
                  "other one");
  }
  return {};
}

// PRRTE and Open MPI 5 set this to their installation. Open MPI's package on PyPI has a separate folder inside it.
std::vector<std::string> pmix_folders(const Environment& environment) {
  const std::string prefix = variable_text(environment, "PMIX_PREFIX");
  if (prefix.empty()) return {};
  return {prefix + "/lib", prefix + "/lib64", prefix + "/lib/openmpi"};
}

}  // namespace

Result<std::optional<OtherLauncher>> other_launcher(const Environment& environment) {
  bool any = false;
  const auto chosen = choose(environment, any);
  if (!chosen.ok()) return chosen.status();
  auto found = *chosen ? with_exchange(environment, **chosen)
               : any   ? Result<std::optional<OtherLauncher>>(std::optional<OtherLauncher>())
                       : pmix_alone(environment);
  if (!found.ok()) return found;
  DISTRUN_RETURN_IF_ERROR(refuse_torch(environment, *found));
  if (*found) (*found)->pmix_folders = pmix_folders(environment);
  return found;
}

std::optional<CopyOfCommand> copy_of_command(const Environment& environment) {
  bool any = false;
  const auto chosen = choose(environment, any);
  if (!chosen.ok() || !*chosen) return std::nullopt;
  const Stated& stated = **chosen;
  return CopyOfCommand{.rank = *stated.rank, .size = *stated.size, .asked_by = shown(environment, stated.family->size)};
}

}  // namespace distrun::net
