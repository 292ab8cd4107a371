#include "launcher/agent/preflight/preflight.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "launcher/exit_codes.h"
#include "launcher/plan/hosts/pasted.h"

namespace distrun::launcher {
namespace {

std::string in_directory(const std::string& path, const std::string& cwd) {
  return path.starts_with('/') || cwd.empty() ? path : cwd + "/" + path;
}

enum class Kind { kMissing, kLinkedInCircle, kOutOfReach, kDirectory, kNotExecutable, kForbiddenThere, kExecutable };

Kind kind_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return errno == EACCES ? Kind::kOutOfReach : errno == ELOOP ? Kind::kLinkedInCircle : Kind::kMissing;
  }
  if (S_ISDIR(info.st_mode)) return Kind::kDirectory;
  // Checks the effective ids, as execve does.
  if (::faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0) return Kind::kExecutable;
  struct statvfs place {};
  const bool mounted_so = ::statvfs(path.c_str(), &place) == 0 && (place.f_flag & ST_NOEXEC) != 0;
  return mounted_so && (info.st_mode & 0111U) != 0 ? Kind::kForbiddenThere : Kind::kNotExecutable;
}

// The first folder on the way to `path` that this user may not enter.
std::string closed_folder(const std::string& path) {
  for (std::size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    if (::faccessat(AT_FDCWD, folder.c_str(), X_OK, AT_EACCESS) != 0) return folder;
  }
  return path;
}

std::string no_entry(const std::string& path, const std::string& host) {
  return "this user may not enter the folder " + closed_folder(path) + " on host " + host;
}

// What is wrong may pass, as before a late mount.
Program refuse(int code, std::string text) {
  return {.refused = Refused{.exit_code = code, .text = std::move(text), .may_come = true}};
}

// Adds which Python it is, if the user has not typed it.
Program with_choice(Program program, const JobCommon& common) {
  if (program.refused && !common.choice.empty()) program.refused->text += ". It is " + common.choice;
  return program;
}

Program check_path(const std::string& name, const std::string& path, const std::string& host) {
  switch (kind_of(path)) {
    case Kind::kExecutable:
      return {.path = path};
    case Kind::kMissing:
      return refuse(exit_code::kMissing,
                    "program " + name + " does not exist on host " + host + ". Check the path" + note_on_pasted(name));
    case Kind::kLinkedInCircle:
      return refuse(exit_code::kNotExecutable,
                    "program " + name + " on host " + host +
                        " is a symbolic link that leads back to itself. Check it with ls -l");
    case Kind::kDirectory:
      return refuse(exit_code::kNotExecutable, name + " is a folder on host " + host + ", not a program");
    case Kind::kOutOfReach:
      return refuse(exit_code::kNotExecutable, "program " + name + ": " + no_entry(path, host));
    case Kind::kForbiddenThere:
      return refuse(exit_code::kNotExecutable, "program " + name + " on host " + host +
                                                   " is on a file system that is mounted with noexec. Write its "
                                                   "interpreter before it, or copy it to another file system");
    case Kind::kNotExecutable:
      break;
  }
  return refuse(exit_code::kNotExecutable, "program " + name + " on host " + host +
                                               " is not executable. Run chmod +x, or write its interpreter before it");
}

// Empty: the name is unknown.
std::vector<std::string> addresses_of(const std::string& name) {
  std::vector<std::string> out;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &wanted, &list) != 0) return out;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  for (const addrinfo* at = list; at != nullptr && out.size() < kMaxCandidates; at = at->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(at->ai_addr, at->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0) {
      out.emplace_back(text.data());
    }
  }
  return out;
}

}  // namespace

Program find_program(const JobCommon& common, const std::string& host) {
  const std::string& name = common.command.front();
  struct stat info {};
  const bool found = ::stat(common.cwd.c_str(), &info) == 0;
  if (!found && errno == EACCES) return refuse(exit_code::kUnusable, no_entry(common.cwd + "/", host));
  if (!found && errno != ENOENT) {
    return refuse(exit_code::kUnusable, "folder " + common.cwd + " on host " + host + ": " + std::strerror(errno));
  }
  if (!found || !S_ISDIR(info.st_mode)) {
    return refuse(exit_code::kUnusable, "folder " + common.cwd + " does not exist on host " + host +
                                            ". Ranks run in the folder where you type distrun");
  }
  const std::string script = in_directory(common.script, common.cwd);
  if (!common.script.empty() && kind_of(script) == Kind::kOutOfReach) {
    return refuse(exit_code::kNotExecutable, "script " + common.script + ": " + no_entry(script, host));
  }
  if (!common.script.empty() && ::access(script.c_str(), R_OK) != 0) {
    return refuse(errno == EACCES ? exit_code::kNotExecutable : exit_code::kMissing,
                  "script " + common.script + " on host " + host + ": " + std::strerror(errno) + " (in folder " +
                      common.cwd + ")" + note_on_pasted(common.script));
  }
  if (name.find('/') != std::string::npos)
    return with_choice(check_path(name, in_directory(name, common.cwd), host), common);
  const auto path = common.environment.find("PATH");
  std::string rest = path == common.environment.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second;
  std::string not_executable;
  while (!rest.empty()) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    const std::string directory = colon == 0 ? "." : from_home(rest.substr(0, colon), common.environment);
    const std::string candidate = in_directory(directory, common.cwd) + "/" + name;
    const Kind kind = kind_of(candidate);
    if (kind == Kind::kExecutable) return {.path = candidate};
    const bool refused = kind == Kind::kNotExecutable || kind == Kind::kForbiddenThere || kind == Kind::kLinkedInCircle;
    if (refused && not_executable.empty()) not_executable = candidate;
    rest.erase(0, colon + 1);
  }
  if (!not_executable.empty()) return with_choice(check_path(not_executable, not_executable, host), common);
  return refuse(exit_code::kMissing, "program " + name + " was not found on host " + host +
                                         " in PATH. Write its full path, or ./" + name + " if it is in this folder" +
                                         note_on_pasted(name));
}

Program find_server(const JobCommon& common, const std::string& host) {
  JobCommon server = common;
  server.command = common.server;
  server.script.clear();
  return find_program(server, host);
}

std::vector<std::string> take_host_own(JobCommon& common, const Environment& own) {
  const auto is_here = [&common](const std::string& folder) {
    return kind_of(in_directory(folder, common.cwd)) == Kind::kDirectory;
  };
  std::vector<std::string> out;
  for (const std::string& name : common.host_own) {
    const auto found = own.find(name);
    if (!names_folder(name)) {
      if (found != own.end()) common.environment[name] = found->second;
      continue;
    }
    const std::string folder = value_of(common.environment, name);
    if (!folder.empty() && is_here(folder)) continue;
    const bool use = found != own.end() && (folder.empty() || is_here(found->second));
    if (!folder.empty()) {
      common.environment.erase(name);
      out.push_back(name + " is " + (use ? found->second : "not set") + ", because " + folder +
                    " is not a folder on this host");
    }
    if (use) common.environment.insert(*found);
  }
  return out;
}

Resolved resolved(const Resolve& question) {
  Resolved out;
  for (const std::string& name : question.names) out.addresses.push_back(addresses_of(name));
  return out;
}

Result<HeldPorts> HeldPorts::hold(int count) {
  HeldPorts out;
  for (int i = 0; i < count; ++i) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket.valid()) return errno_status("reserve a port", errno);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    // Binds before it sets SO_REUSEADDR. The kernel then picks an unused port, not one that is being shared.
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      return errno_status("reserve a port", errno);
    }
    const int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    socklen_t size = sizeof address;
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
    out.numbers_.push_back(ntohs(address.sin_port));
    out.sockets_.push_back(std::move(socket));
  }
  return out;
}

}  // namespace distrun::launcher
