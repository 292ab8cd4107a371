#include "runtime/backend/plugin/describe.h"

#include <algorithm>

#include "runtime/backend/builtin/builtin.h"
#include "runtime/backend/plugin/loader.h"
#include "runtime/base/json.h"
#include "runtime/base/settings.h"

namespace distrun::backend {
namespace {

// The plug-ins of this project. Each is a separate file that may be missing.
constexpr const char* kProjectPlugins[] = {"gloo", "mpi", "nccl"};

}  // namespace

BackendList list_backends(const Settings& settings, const std::string& plugin_folder) {
  BackendList list;
  for (const auto& factory : builtin_factories()) {
    const Status usable = factory->usable();
    list.entries.push_back({.backend = std::string(factory->name()),
                            .usable = usable.ok(),
                            .reason = usable.ok() ? "built in" : usable.message()});
  }
  plugin::Plugins plugins = plugin::load_plugins(settings, plugin_folder);
  // Two ranks that share no host. The list shows what this machine has, not what a certain job needs.
  const GroupSpec group{.id = "check", .members = {0, 1}, .index = 0};
  for (const auto& factory : plugins.factories) {
    const Offer offer = factory->offer(group, {});
    list.entries.push_back({.backend = std::string(factory->name()),
                            .usable = offer.available,
                            .reason = offer.reason,
                            .library_version = offer.library_version});
  }
  for (const char* name : kProjectPlugins) {
    if (find_factory(plugins.factories, name) != nullptr) continue;
    list.entries.push_back(
        {.backend = name, .reason = "no plug-in libdistrun_backend_" + std::string(name) + ".so in " + plugin_folder});
  }
  list.warnings = std::move(plugins.warnings);
  return list;
}

BackendList list_backends(const Settings& settings) { return list_backends(settings, plugin::default_folder()); }

std::string to_text(const BackendList& list) {
  std::string text;
  for (const auto& [backend, usable, reason, version] : list.entries) {
    text += backend + (usable ? ": ok" : ": not available") + (reason.empty() ? "" : " (" + reason + ")") + "\n";
  }
  for (const std::string& warning : list.warnings) text += "warning: " + warning + "\n";
  return text;
}

std::string to_json(const BackendList& list) {
  std::string entries;
  for (const auto& [backend, usable, reason, version] : list.entries) {
    entries += std::string(entries.empty() ? "" : ", ") + R"({"backend": )" + json_string(backend) + R"(, "usable": )" +
               (usable ? "true" : "false") + R"(, "reason": )" + json_string(reason) +
               (version == 0 ? "" : R"(, "library_version": )" + std::to_string(version)) + "}";
  }
  std::string warnings;
  for (const std::string& one : list.warnings) warnings += (warnings.empty() ? "" : ", ") + json_string(one);
  return R"({"backends": [)" + entries + R"(], "warnings": [)" + warnings + "]}";
}

}  // namespace distrun::backend
