#include "launcher/cli/host_source.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "launcher/cli/text_file.h"
#include "launcher/plan/place/assign.h"
#include "launcher/plan/schedulers/allocation.h"
#include "launcher/spawn/agent_spawner.h"
#include "runtime/net/host/host_candidates.h"

namespace distrun::launcher {
namespace {

// Returns an empty text if the address is neither IPv4 nor IPv6.
std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* bytes = nullptr;
  if (address != nullptr && address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address != nullptr && address->sa_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  }
  return bytes != nullptr && ::inet_ntop(address->sa_family, bytes, text, sizeof text) != nullptr ? text : "";
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> out;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return out;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (std::string text = text_of(at->ifa_addr); !text.empty()) out.push_back(std::move(text));
  }
  return out;
}

// True if connections to this name reach this machine.
bool leads_here(const std::string& name, const std::vector<std::string>& addresses) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &wanted, &list) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    const std::string text = text_of(at->ai_addr);
    if (text.starts_with("127.") || std::find(addresses.begin(), addresses.end(), text) != addresses.end()) return true;
  }
  return false;
}

Status read_hostfile(const std::string& path, HostSource& out) {
  auto text = read_text(path);
  if (!text.ok()) return Status(Errc::kInvalidArgument, text.status().with_context("--hostfile").message());
  const std::string name = path == "-" ? "standard input" : path;
  auto hosts = parse_hostfile(*text, name);
  if (!hosts.ok()) return hosts.status();
  out.hosts = *std::move(hosts);
  out.more_slots = "write more slots into " + name;
  return {};
}

bool has_terminal() {
  const int terminal = ::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
  if (terminal >= 0) ::close(terminal);
  return terminal >= 0;
}

// srun passes SLURM_PTY_PORT of the shell it was typed in to every step. It is true only if there is a terminal.
Result<std::optional<Allocation>> allocation_here(Environment environment) {
  if (!has_terminal()) environment.erase("SLURM_PTY_PORT");
  return detect_allocation(environment,
                           [&environment](const std::string& path) { return read_text(from_home(path, environment)); });
}

// The user's own way to reach hosts overrides the scheduler's.
bool says_how(const Options& options) {
  return options.hosts.ssh.given() || !options.hosts.launch_with.empty() || !options.hosts.mpi.empty() ||
         !options.hosts.detect;
}

void take_allocation(const Allocation& found, HostSource& out) {
  if (!found.own_name.empty()) out.own_names.push_back(found.own_name);
  out.more_slots = found.more_slots;
  out.launch_with = found.launch_with;
  out.launch_with_of = found.launch_with_of;
  out.hosts = found.hosts;
}

// The user named hosts inside an allocation. If the scheduler can start agents on them, no ssh is needed.
void use_allocation(const Options& options, const Environment& environment, HostSource& out) {
  if (says_how(options)) return;
  const auto found = allocation_here(environment);
  if (!found.ok() || !*found) return;
  if (!(*found)->launch_with.empty() && !find_in_path("srun", environment)) return;
  std::vector<std::string> own_names = out.own_names;
  own_names.push_back((*found)->own_name);
  Reach reach = reach_of_named(**found, out.hosts, own_names);
  out.launch_with = std::move(reach.launch_with);
  out.launch_with_of = std::move(reach.launch_with_of);
  out.found = std::move(reach.note);
}

// MPI's launcher starts nothing on a host until the number of ranks is known, so other hosts cannot be asked.
bool cannot_ask(const Options& options, const HostSource& out) {
  return !options.hosts.mpi.empty() && options.placement.ranks_per_host == 0 &&
         std::any_of(out.hosts.begin(), out.hosts.end(),
                     [&](const HostSlots& host) { return !names_this_machine(host.name, host.user, out.own_names); });
}

// Called when the names of this machine are known. Counts the slots for --mpi.
void describe_allocation(const Options& options, Allocation found, HostSource& out) {
  const bool counted = cannot_ask(options, out) && count_no_gpus(out.hosts);
  if (counted) count_no_gpus(found.hosts);
  out.found = found_text(found);
  if (counted)
    out.found += ". With --mpi distrun does not ask the hosts for their GPUs: for other slots use -H HOST:SLOTS";
  if (!found.advice.empty() && !says_how(options)) out.found += ". " + found.advice;
}

// The user may write 0 slots for a host that is out of order. A job needs at least one other host.
Status leave_out(const Options& options, HostSource& out) {
  out.left_out = leave_out_without_slots(out.hosts);
  if (out.left_out.empty() || !out.hosts.empty()) return {};
  return {options.hosts.named() ? Errc::kInvalidArgument : Errc::kSystem,
          "no host is left: " + out.left_out + ". Give at least one host a slot, as in -H host1:4"};
}

// Checks --launch-with against the users of the hosts. If hosts have users, it needs {user}; if it has {user}, each
// host needs a user.
Status check_users(const Options& options, const HostSource& found) {
  if (options.hosts.launch_with.empty()) return {};
  for (const HostSlots& host : found.hosts) {
    if (names_this_machine(host.name, host.user, found.own_names)) continue;
    DISTRUN_RETURN_IF_ERROR(launch_argv(options.hosts.launch_with, host.user, host.name, "").status());
  }
  return {};
}

}  // namespace

bool in_allocation_of_several(const Environment& environment) {
  const auto found = allocation_here(environment);
  return !found.ok() || (*found && (*found)->hosts.size() > 1);
}

Result<HostSource> find_hosts(const Options& options, const Environment& environment) {
  HostSource out;
  std::optional<Allocation> allocation;
  if (!options.hosts.list.empty()) {
    auto hosts = parse_hosts(options.hosts.list);
    if (!hosts.ok()) return hosts.status();
    out.hosts = *std::move(hosts);
  } else if (!options.hosts.file.empty()) {
    DISTRUN_RETURN_IF_ERROR(read_hostfile(options.hosts.file, out));
  } else if (options.hosts.detect) {
    auto found = allocation_here(environment);
    if (!found.ok()) return found.status();
    allocation = *std::move(found);
    if (allocation) take_allocation(*allocation, out);
  }
  const std::vector<std::string> addresses = own_addresses();
  // A scheduler's list names no machine of another site.
  const auto is_here = [&](const std::string& name) {
    if (allocation || leads_here(name, addresses)) return true;
    out.elsewhere = name + " is not an address of this machine, so distrun takes it for another host";
    return false;
  };
  for (const std::string& own : names_of_host(net::host_name(), out.hosts, is_here)) out.own_names.push_back(own);
  out.own_names.insert(out.own_names.end(), addresses.begin(), addresses.end());
  out.hosts = merge_own_names(out.hosts, out.own_names);
  DISTRUN_RETURN_IF_ERROR(leave_out(options, out));
  if (allocation) describe_allocation(options, *std::move(allocation), out);
  if (options.hosts.named()) use_allocation(options, environment, out);
  DISTRUN_RETURN_IF_ERROR(check_users(options, out));
  return out;
}

}  // namespace distrun::launcher
