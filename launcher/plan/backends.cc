#include "launcher/plan/backends.h"

#include <algorithm>
#include <set>

#include "runtime/base/setting_values.h"

namespace distrun::launcher {
namespace {

std::vector<std::string> split_at(std::string_view text, char separator) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

std::vector<std::string> backends_in(std::string_view setting) {
  std::vector<std::string> out = split_at(setting, ',');
  for (std::string& name : out) {
    if (const std::size_t colon = name.find(':'); colon != name.npos) name.erase(0, colon + 1);
  }
  return out;
}

std::string backend_of_file(std::string_view path) {
  constexpr std::string_view kBefore = "libdistrun_backend_";
  constexpr std::string_view kAfter = ".so";
  const std::string_view file = path.substr(path.rfind('/') + 1);
  if (!file.starts_with(kBefore) || !file.ends_with(kAfter) || file.size() < kBefore.size() + kAfter.size()) return {};
  return std::string(file.substr(kBefore.size(), file.size() - kBefore.size() - kAfter.size()));
}

Status check_backend(const Settings& settings, const std::vector<std::string>& found) {
  // The plug-ins of the wheel may be in another installation than that of this command.
  std::set<std::string> known = {"gloo", "hierarchical", "mpi", "nccl", "self", "shm", "tcp"};
  known.insert(found.begin(), found.end());
  for (const std::string& file : split_at(settings.plugins, ':')) known.insert(backend_of_file(file));
  known.erase("");
  if (const std::string& name = settings.between_hosts; !known.contains(name)) {
    return {Errc::kInvalidArgument, no_such_backend_between_hosts(name, {known.begin(), known.end()})};
  }
  for (const std::string& name : backends_in(settings.backend)) {
    if (name == "auto" || known.contains(name)) continue;
    known.erase("self");  // for one rank alone
    return {Errc::kInvalidArgument, no_such_backend(name, {known.begin(), known.end()})};
  }
  return {};
}

}  // namespace distrun::launcher
