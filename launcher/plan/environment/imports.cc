#include "launcher/plan/environment/imports.h"

#include <algorithm>
#include <array>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

constexpr std::array<std::string_view, 9> kLaunchers = {"torchrun", "accelerate-launch", "deepspeed",
                                                        "composer", "horovodrun",        "mpirun",
                                                        "mpiexec",  "mpiexec.hydra",     "srun"};
constexpr std::array<std::string_view, 2> kLauncherCommands = {"accelerate launch", "fabric run"};
constexpr std::array<std::string_view, 3> kLauncherModules = {"torch.distributed.run", "torch.distributed.launch",
                                                              "accelerate.commands.launch"};

// "import a.b as c" and "from a.b import c" give a. `import a, b` gives the first one.
std::string_view top_package(std::string_view line) {
  line = trim(line);
  for (const std::string_view word : {"import ", "from "}) {
    if (!line.starts_with(word)) continue;
    line = trim(line.substr(word.size()));
    return line.substr(0, line.find_first_of("., ;#"));
  }
  return {};
}

}  // namespace

Imports imports_in(std::string_view script) {
  Imports out;
  const bool starts =
      script.find("initialize_distributed(") != script.npos || script.find("distributed.initialize(") != script.npos;
  for (const char* option : {"\"--local_rank\"", "'--local_rank'", "\"--local-rank\"", "'--local-rank'"}) {
    const bool there = script.find(option) != script.npos && script.find("LOCAL_RANK") == script.npos;
    out.local_rank_option = out.local_rank_option || there;
  }
  const auto names = [script](const std::string& variable) {
    return script.find('"' + variable + '"') != script.npos || script.find("'" + variable + "'") != script.npos;
  };
  // A script that reads its place from variables has another branch for the case that they are not set.
  const bool unaided = script.find("distributed.initialize()") != script.npos && !names("JAX_NUM_PROCESSES") &&
                       !names("JAX_PROCESS_COUNT") && !names("JAX_PROCESS_ID") && !names("JAX_PROCESS_INDEX");
  const auto has = [script](std::string_view text) { return script.find(text) != script.npos; };
  out.dtensor =
      has("dtensor") && !has("DTENSOR_") &&
      (has("initialize_accelerator_system(") || has("create_distributed_mesh(") || has("initialize_multi_client("));
  out.slurm_rank = names("SLURM_PROCID") && !names("RANK");
  while (!script.empty()) {
    const std::size_t end = std::min(script.find('\n'), script.size());
    const std::string_view package = top_package(script.substr(0, end));
    script.remove_prefix(std::min(end + 1, script.size()));
    out.mpi4py = out.mpi4py || package == "mpi4py";
    out.horovod = out.horovod || package == "horovod";
    out.jax_job = out.jax_job || (starts && package == "jax");
    out.jax_unaided = out.jax_unaided || (unaided && package == "jax");
    out.distrun = out.distrun || package == "distrun";
  }
  return out;
}

std::string launcher_in(const std::vector<std::string>& command) {
  const std::string name = command.front().substr(command.front().rfind('/') + 1);
  if (contains(kLaunchers, name)) return name;
  if (const std::string both = command.size() > 1 ? name + " " + command[1] : ""; contains(kLauncherCommands, both)) {
    return both;
  }
  if (!name.starts_with("python")) return {};
  // Options of Python without values may come before it.
  std::size_t at = 1;
  while (at < command.size() && command[at].starts_with('-') && command[at] != "-m") ++at;
  const bool module = at + 1 < command.size() && command[at] == "-m" && contains(kLauncherModules, command[at + 1]);
  return module ? "python -m " + command[at + 1] : "";
}

}  // namespace distrun::launcher
