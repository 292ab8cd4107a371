#include "runtime/backend/plugin/describe.h"

#include <set>

#include "runtime/backend/builtin/builtin.h"
#include "runtime/backend/plugin/loader.h"

namespace distrun::backend {
namespace {

// Plug-ins of this project, each a file of its own that may be there or not.
constexpr const char* kProjectPlugins[] = {"gloo", "mpi", "nccl"};

std::string line(std::string_view name, bool ok, const std::string& reason) {
  return std::string(name) + (ok ? ": ok" : ": not available") + (reason.empty() ? "" : " (" + reason + ")") + "\n";
}

}  // namespace

std::string describe_backends(const Settings& settings, const std::string& plugin_folder) {
  std::string text;
  for (const auto& factory : builtin_factories()) {
    const Status usable = factory->usable();
    text += line(factory->name(), usable.ok(), usable.ok() ? "built in" : usable.message());
  }
  const plugin::Plugins plugins = plugin::load_plugins(settings, plugin_folder);
  std::set<std::string, std::less<>> found;
  // Two ranks that share nothing: the question is what this machine has, not what a job needs.
  const GroupSpec group{.id = "check", .members = {0, 1}, .index = 0};
  for (const auto& factory : plugins.factories) {
    const Offer offer = factory->offer(group, {});
    text += line(factory->name(), offer.available, offer.reason);
    found.emplace(factory->name());
  }
  for (const char* name : kProjectPlugins) {
    if (found.contains(name)) continue;
    text += line(name, false, "no plug-in libdistrun_backend_" + std::string(name) + ".so in " + plugin_folder);
  }
  for (const std::string& warning : plugins.warnings) text += "warning: " + warning + "\n";
  return text;
}

std::string describe_backends(const Settings& settings) {
  return describe_backends(settings, plugin::default_folder());
}

}  // namespace distrun::backend
