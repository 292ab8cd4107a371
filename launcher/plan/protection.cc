#include "launcher/plan/protection.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "launcher/plan/backends.h"
#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

// Backends that protect the data they send to other hosts, or send none.
constexpr std::array<std::string_view, 5> kProtecting = {"auto", "self", "shm", "tcp", "hierarchical"};

// The first backend in a setting such as "tcp" or "cpu:tcp,cuda:nccl" that cannot protect its data. Empty: all can.
std::string unable(std::string_view setting) {
  for (const std::string& name : backends_in(setting)) {
    if (std::find(kProtecting.begin(), kProtecting.end(), name) == kProtecting.end()) return name;
  }
  return {};
}

// The part that would send tensors as they are, and what to type instead; empty: no part would.
std::string obstacle(const Options& options, const Settings& settings) {
  const FrameworkOptions& frameworks = options.frameworks;
  if (!frameworks.tf_roles.empty())
    return "TensorFlow opens connections of its own with --tf-roles.\nLeave out one of the two options.";
  if (frameworks.tf) return "TensorFlow opens connections of its own with --tf.\nLeave out one of the two options.";
  if (const std::string name = unable(settings.backend); !name.empty()) {
    return "the backend " + name + " cannot protect tensors.\nLeave out --backend, or use tcp or hierarchical.";
  }
  if (settings.between_hosts != "tcp") {
    return settings.between_hosts + " cannot protect tensors between hosts.\nLeave out --between-hosts.";
  }
  return {};
}

}  // namespace

Status check_protection(const Options& options, const Settings& settings, std::size_t hosts) {
  if (hosts < 2 || (!settings.encrypt && !settings.checksum)) return {};
  const std::string why = obstacle(options, settings);
  if (why.empty()) return {};
  const std::string option = settings.encrypt ? "--encrypt" : "--checksum";
  const bool named = options.hosts.named() || options.hosts.agents > 0;
  return {named ? Errc::kInvalidArgument : Errc::kUnsupported,
          option + " is not possible on " + counted(hosts, "host") + ": " + why};
}

}  // namespace distrun::launcher
