#include "runtime/base/environment.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace distrun {
namespace {

// The home of an account, or of the own one if the name is empty. Empty if it is unknown.
std::string home_of(const std::string& name) {
  std::vector<char> room(16 * 1024);
  passwd account{};
  passwd* found = nullptr;
  if (name.empty()) {
    ::getpwuid_r(::getuid(), &account, room.data(), room.size(), &found);
  } else {
    ::getpwnam_r(name.c_str(), &account, room.data(), room.size(), &found);
  }
  return found == nullptr ? "" : found->pw_dir;
}

}  // namespace

Environment process_environment() {
  Environment out;
  for (char** item = environ; item != nullptr && *item != nullptr; ++item) {
    const std::string_view line(*item);
    const std::size_t equals = line.find('=');
    // The first entry of a name wins, as in getenv.
    if (equals != std::string_view::npos) out.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return out;
}

std::string from_home(std::string_view path, const Environment& environment) {
  if (!path.starts_with('~')) return std::string(path);
  const std::size_t slash = std::min(path.find('/'), path.size());
  const std::string name(path.substr(1, slash - 1));
  const auto own = environment.find("HOME");
  const bool known = name.empty() && own != environment.end() && !own->second.empty();
  const std::string home = known ? own->second : home_of(name);
  return home.empty() ? std::string(path) : home + std::string(path.substr(slash));
}

std::string fault_of_home(std::string_view path, const Environment& environment) {
  if (!path.starts_with('~') || from_home(path, environment) != path) return {};
  const std::string account(path.substr(0, path.find('/')));
  if (account == "~") return "HOME is not set, and this user has no account on this machine. Write the whole path";
  return "no account on this machine has the home " + account + ". For a file of that name, write ./" + account;
}

std::string each_from_home(std::string_view paths, const Environment& environment) {
  std::string out;
  for (std::size_t at = 0; at <= paths.size();) {
    const std::size_t end = std::min(paths.find(':', at), paths.size());
    out += (at == 0 ? "" : ":") + from_home(paths.substr(at, end - at), environment);
    at = end + 1;
  }
  return out;
}

}  // namespace distrun
