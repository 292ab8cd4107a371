#include "launcher/plan/environment/environment.h"

#include <algorithm>
#include <array>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

// Kept with --env none, since programs need these to start at all.
constexpr std::array<std::string_view, 10> kAlwaysKept = {"PATH", "HOME",   "USER", "LOGNAME", "SHELL",
                                                          "LANG", "LC_ALL", "TZ",   "TMPDIR",  "LD_LIBRARY_PATH"};

// Variables that a launcher sets itself. Settings such as DISTRUN_BACKEND belong to the user.
constexpr std::array<std::string_view, 15> kOurs = {
    "DISTRUN_RANK",       "DISTRUN_SIZE",   "DISTRUN_LOCAL_RANK", "DISTRUN_LOCAL_SIZE", "DISTRUN_CROSS_RANK",
    "DISTRUN_CROSS_SIZE", "DISTRUN_HOST",   "DISTRUN_JOB_ID",     "DISTRUN_STORE",      "DISTRUN_ADDRESS",
    "DISTRUN_GPUS",       "DISTRUN_KEY_FD", "DISTRUN_KEY_FILE",   "DISTRUN_TF",         "DISTRUN_WARNED"};

// With torchrun's TORCHELASTIC_USE_AGENT_STORE every rank would be a client of a store that no process serves.
constexpr std::array<std::string_view, 6> kOuterPrefixes = {"PMIX_", "PMI_",        "OMPI_",
                                                            "PRTE_", "SLURM_STEP_", "TORCHELASTIC_"};
// SLURM_NTASKS and SLURM_NPROCS describe the job, but programs read them together with SLURM_PROCID. Without
// SLURM_PROCID each rank would act as the first of that many tasks.
constexpr std::array<std::string_view, 12> kOuterNames = {
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",    "SLURM_STEPID",    "SLURM_TASK_PID", "SLURM_NTASKS",
    "SLURM_NPROCS", "PALS_RANKID",   "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID"};

// The account may differ on another host.
constexpr std::array<std::string_view, 5> kAccountOwn = {"HOME", "USER", "LOGNAME", "SHELL", "MAIL"};
// Each host's GPUs have their own UUIDs, and a scheduler may have assigned other GPUs there.
constexpr std::array<std::string_view, 7> kDevices = {
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",  "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",   "ZE_AFFINITY_MASK",       "HABANA_VISIBLE_DEVICES"};
// These are also true on one host only, or useless on others.
constexpr std::array<std::string_view, 30> kHostOwn = {
    // The host.
    "HOSTNAME", "HOST", "HOSTTYPE", "MACHTYPE", "SLURMD_NODENAME",
    // The session: sockets, displays and terminals.
    "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "GPG_TTY",
    "KRB5CCNAME", "XDG_RUNTIME_DIR", "XDG_SESSION_ID", "XDG_SESSION_TYPE", "XDG_SEAT", "XDG_VTNR",
    "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "TMUX", "TMUX_PANE", "STY", "WINDOWID",
    "NOTIFY_SOCKET",
    // Folders that a scheduler may have made on one host. See names_folder().
    "TMPDIR", "TMP", "TEMP"};

bool kept(std::string_view name, EnvMode mode, bool outer) {
  if (contains(kOurs, name)) return false;
  if (mode == EnvMode::kAll) return true;
  if (mode == EnvMode::kNone) return contains(kAlwaysKept, name) || name.starts_with("DISTRUN_");
  return !outer;
}

// The variable of a runtime setting.
std::string variable_of(const std::string& setting) {
  std::string out = "DISTRUN_" + setting;
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return out;
}

}  // namespace

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

std::optional<std::string> visible_devices(const Environment& environment) {
  const auto found = environment.find("CUDA_VISIBLE_DEVICES");
  return found == environment.end() ? std::nullopt : std::optional(found->second);
}

bool names_outer_rank(std::string_view name) {
  if (contains(kOuterNames, name)) return true;
  return std::any_of(kOuterPrefixes.begin(), kOuterPrefixes.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

bool names_folder(std::string_view name) { return name == "TMPDIR" || name == "TMP" || name == "TEMP"; }

bool names_devices(std::string_view name) { return contains(kDevices, name); }

bool names_one_host(std::string_view name) { return names_devices(name) || contains(kHostOwn, name); }

bool valid_variable_name(std::string_view name) {
  if (name.empty() || (name.front() >= '0' && name.front() <= '9')) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

BaseEnvironment base_environment(const Environment& user, const EnvironmentOptions& options,
                                 const std::vector<std::pair<std::string, std::string>>& from_file) {
  BaseEnvironment out;
  // If distrun itself runs in a rank of another job, TF_CONFIG names the cluster of that job.
  const bool in_rank = user.contains("DISTRUN_RANK");
  for (const auto& [name, value] : user) {
    const bool outer = names_outer_rank(name) || (in_rank && name == "TF_CONFIG");
    if (kept(name, options.mode, outer)) {
      out.variables[name] = value;
    } else if (outer) {
      out.removed.push_back(name);
    }
  }
  const auto stays = [&](std::string_view name) {
    if (options.mode != EnvMode::kAll && kept(name, options.mode, false)) out.host_own.emplace_back(name);
  };
  std::for_each(kAccountOwn.begin(), kAccountOwn.end(), stays);
  std::for_each(kDevices.begin(), kDevices.end(), stays);
  std::for_each(kHostOwn.begin(), kHostOwn.end(), stays);
  const auto give = [&out](const std::string& name, const std::string& value, const char* why) {
    out.variables[name] = value;
    out.given[name] = why;
  };
  for (const auto& [name, value] : from_file) {
    give(name, value, "--env-file");
    out.named.push_back(name);
    std::erase(out.host_own, name);
  }
  for (const std::string& item : options.forwarded) {
    const std::size_t equals = item.find('=');
    const std::string name = item.substr(0, equals);
    if (equals != std::string::npos) {
      give(name, item.substr(equals + 1), "-x");
    } else if (const auto found = user.find(name); found != user.end()) {
      give(name, found->second, "-x");
    } else {
      out.notes.push_back("-x " + name + ": this variable is not set, so ranks do not get it. Write -x " + name +
                          "=value to set it");
    }
    if (out.variables.contains(name)) out.named.push_back(name);
    std::erase(out.removed, name);
    std::erase(out.host_own, name);
  }
  for (const auto& [setting, value] : options.settings) give(variable_of(setting), value, "flag");
  for (const auto& [setting, value] : options.file_settings) {
    const std::string name = variable_of(setting);
    if (value_of(out.variables, name).empty()) give(name, value, "config file");  // empty counts as unset
  }
  std::erase_if(out.given, [&](const auto& one) {
    const auto own = user.find(one.first);
    return own != user.end() && own->second == out.variables[one.first];
  });
  return out;
}

Result<std::uint16_t> named_master_port(const BaseEnvironment& base) {
  constexpr const char* kName = "MASTER_PORT";
  if (!contains(base.named, kName)) return std::uint16_t{0};
  const std::string text = value_of(base.variables, kName);
  const auto port = parse_number(text, 1, 65535);
  if (port) return static_cast<std::uint16_t>(*port);
  return Status(Errc::kInvalidArgument, in_quotes(text) + " is not a port. Write -x " + kName +
                                            "=29500, or leave it out: distrun then finds a free port");
}

}  // namespace distrun::launcher
