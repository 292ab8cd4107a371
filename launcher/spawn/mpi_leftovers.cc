#include "launcher/spawn/mpi_leftovers.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

constexpr std::uint32_t kFamily = 0xffff0000;
constexpr std::uint32_t kWhole = 0xffffffff;

// Open MPI's hash from a name to a number (Bob Jenkins' one-at-a-time).
std::uint32_t hash_of(std::string_view text) {
  std::uint32_t out = 0;
  for (const char letter : text) {
    out += static_cast<unsigned char>(letter);
    out += out << 10;
    out ^= out >> 6;
  }
  out += out << 3;
  out ^= out >> 11;
  return out + (out << 15);
}

std::uint32_t family_of_hash(std::uint32_t hash) { return ((hash >> 16) ^ (hash & 0xffff)) << 16; }

template <class Number>
std::optional<Number> whole_number(std::string_view text, int base = 10) {
  Number out{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? std::optional(out) : std::nullopt;
}

// Removes and returns the part after the last dot; empty: no dot.
std::string_view take_last(std::string_view& text) {
  const std::size_t dot = text.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view out = text.substr(dot + 1);
  text = text.substr(0, dot);
  return out;
}

// Open MPI may omit the domain.
bool names_host(std::string_view text, const std::string& host) {
  return text == host || text == std::string_view(host).substr(0, host.find('.'));
}

std::string variable(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

bool gone(pid_t pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; }

std::vector<std::filesystem::path> entries_of(const std::string& directory) {
  std::vector<std::filesystem::path> out;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    out.push_back(it->path());
  }
  return out;
}

// False for a folder of another user and for a symbolic link, so that nothing there is removed.
bool is_own_folder(const std::filesystem::path& path, uid_t user) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == user;
}

void remove_folder(const std::filesystem::path& path, uid_t user) {
  if (!is_own_folder(path, user)) return;
  std::error_code error;
  std::filesystem::remove_all(path, error);
  const std::filesystem::path above = path.parent_path();
  const std::string name = above.filename().string();
  if (name.starts_with("ompi.") || name.starts_with("prte.")) ::rmdir(above.c_str());  // if it is empty
}

// The jobs of a daemon, from its folder: "3137798144.0;tcp://..." in Open MPI 4, the name of a namespace in Open MPI 5.
std::vector<OpenMpiJob::Number> numbers_of_folder(const std::filesystem::path& path, const std::string& host,
                                                  pid_t daemon) {
  std::ifstream file(path / "contact.txt");
  std::string line;
  std::getline(file, line);
  if (const auto number = whole_number<std::uint32_t>(line.substr(0, line.find('.')))) {
    return {{.value = *number & kFamily, .mask = kFamily}};
  }
  return numbers_of_namespace("prterun-" + host + "-" + std::to_string(daemon) + "@0");
}

}  // namespace

bool OpenMpiJob::owns(std::uint32_t number) const {
  return std::any_of(numbers.begin(), numbers.end(),
                     [number](const Number& own) { return (number & own.mask) == own.value; });
}

std::vector<OpenMpiJob::Number> numbers_of_namespace(std::string_view name) {
  if (name.empty()) return {};
  if (const auto number = whole_number<std::uint32_t>(name)) return {{.value = *number & kFamily, .mask = kFamily}};
  const std::size_t at = name.rfind('@');
  const std::uint32_t hash = hash_of(name.substr(0, at));
  if (at != std::string_view::npos) return {{.value = family_of_hash(hash), .mask = kFamily}};
  // Open MPI 4 and 5 derive different numbers from it.
  return {{.value = hash & ~0x8000U, .mask = kWhole}, {.value = family_of_hash(hash), .mask = kWhole}};
}

std::optional<OpenMpiJob> open_mpi_job(const Environment& environment, const std::string& host, uid_t user) {
  OpenMpiJob out{.numbers = numbers_of_namespace(variable(environment, "PMIX_NAMESPACE")), .host = host, .user = user};
  if (out.numbers.empty()) out.numbers = numbers_of_namespace(variable(environment, "OMPI_MCA_ess_base_jobid"));
  if (out.numbers.empty()) return std::nullopt;
  const std::filesystem::path folder = variable(environment, "PMIX_SERVER_TMPDIR");
  const std::string name = folder.filename().string();
  const std::string above = folder.parent_path().filename().string();
  const std::string users = "." + host + "." + std::to_string(user);
  const bool below_users = above == "ompi" + users || above == "prte" + users;
  const bool own_name = name.starts_with("ompi.") && whole_number<pid_t>(name.substr(5));
  if (folder.is_absolute() && (below_users || own_name)) out.folder = folder.string();
  return out;
}

bool is_shared_memory_of(const OpenMpiJob& job, std::string_view name, std::optional<int> node_rank) {
  const bool segment = name.starts_with("vader_segment.") || name.starts_with("sm_segment.");
  if (!segment && !name.starts_with("osc_sm.") && !name.starts_with("osc_rdma.")) return false;
  std::string_view rest = name.substr(name.find('.') + 1);
  const auto last = whole_number<int>(take_last(rest));
  if (!last) return false;
  if (segment) {
    const auto number = whole_number<std::uint32_t>(take_last(rest), 16);
    const auto user = whole_number<uid_t>(take_last(rest));
    return number && job.owns(*number) && user == job.user && names_host(rest, job.host) &&
           (!node_rank || *last == *node_rank);
  }
  if (node_rank || !whole_number<int>(take_last(rest))) return false;
  const auto number = whole_number<std::uint32_t>(take_last(rest), 16);
  return number && job.owns(*number) && names_host(rest, job.host);
}

std::optional<pid_t> daemon_of_folder(std::string_view folder, const std::string& host, uid_t user) {
  if (const auto alone = folder.starts_with("ompi.") ? whole_number<pid_t>(folder.substr(5)) : std::nullopt) {
    return alone;
  }
  const std::size_t slash = folder.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string users = "." + host + "." + std::to_string(user);
  const std::string_view above = folder.substr(0, slash);
  const std::string_view name = folder.substr(slash + 1);
  if (above != "ompi" + users && above != "prte" + users) return std::nullopt;
  for (const std::string_view prefix : {"pid.", "dvm."}) {
    if (name.starts_with(prefix)) return whole_number<pid_t>(name.substr(prefix.size()));
  }
  return std::nullopt;
}

void remove_shared_memory(const OpenMpiJob& job, std::optional<int> node_rank, const std::string& directory) {
  for (const std::filesystem::path& path : entries_of(directory)) {
    struct stat info {};
    if (!is_shared_memory_of(job, path.filename().string(), node_rank)) continue;
    if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != job.user) continue;
    ::unlink(path.c_str());
  }
}

void remove_daemon_folder(const OpenMpiJob& job) {
  if (!job.folder.empty()) remove_folder(job.folder, job.user);
}

void remove_leftovers_of(const std::set<pid_t>& daemons, const std::string& host, uid_t user, const std::string& base,
                         const std::string& directory) {
  const auto look = [&](const std::filesystem::path& path, const std::string& name) {
    const auto daemon = daemon_of_folder(name, host, user);
    if (!daemon || !daemons.contains(*daemon) || !gone(*daemon) || !is_own_folder(path, user)) return;
    const OpenMpiJob job{.numbers = numbers_of_folder(path, host, *daemon), .host = host, .user = user};
    remove_shared_memory(job, std::nullopt, directory);
    remove_folder(path, user);
  };
  const std::string users = "." + host + "." + std::to_string(user);
  for (const std::filesystem::path& path : entries_of(base)) {
    const std::string name = path.filename().string();
    look(path, name);
    if (name != "ompi" + users && name != "prte" + users) continue;
    for (const std::filesystem::path& below : entries_of(path.string())) {
      look(below, name + "/" + below.filename().string());
    }
  }
}

std::string open_mpi_base(const Environment& environment) {
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base", "TMPDIR", "TMP", "TEMP"}) {
    if (const std::string value = variable(environment, name); !value.empty()) return value;
  }
  return "/tmp";
}

}  // namespace distrun::launcher
