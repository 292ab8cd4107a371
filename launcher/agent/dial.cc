#include "launcher/agent/dial.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "launcher/agent/agent.h"
#include "launcher/agent/guard.h"
#include "launcher/exit_codes.h"
#include "launcher/plan/hosts/hostlist.h"
#include "launcher/plan/hosts/pasted.h"
#include "launcher/plan/hosts/text.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/host/host_candidates.h"
#include "runtime/net/identity/key_file.h"

namespace distrun::launcher {
namespace {

constexpr double kOneAddress = 5;

int wrong(const std::string& text) {
  std::fprintf(stderr, "distrun: %s%s\nType distrun agent --help for its options.\n", text.c_str(),
               note_on_pasted(text).c_str());
  return exit_code::kUsage;
}

// Retries, because the head may be started later. Permanent errors (a wrong key, another version) are not retried.
Result<std::unique_ptr<net::SecureSocket>> dial(const std::string& head, const net::JobKey& key,
                                                const std::string& host, TimePoint deadline) {
  const net::Hello hello{.purpose = kDialPurpose + host, .job_id = kDialJob};
  for (bool first = true;; first = false) {
    auto socket = net::connect_secure(head, key, hello, std::min(deadline, deadline_after(5)));
    const bool may_come = socket.status().code() == Errc::kRankLost || socket.status().code() == Errc::kTimeout ||
                          socket.status().code() == Errc::kSystem;
    if (socket.ok() || !may_come || Clock::now() >= deadline) return socket;
    if (first) {
      std::fprintf(stderr, "distrun: no head answers at %s yet, trying again until --timeout is over: %s\n",
                   head.c_str(), printable_lines(socket.status().message()).c_str());
    }
    ::poll(nullptr, 0, 500);  // polls, because no event tells when the head begins to listen
  }
}

}  // namespace

std::string fault_of_host_name(const std::string& name) {
  if (name.size() > kLongestHost) return "a name has at most " + std::to_string(kLongestHost) + " characters";
  const auto fault = check_host_name(name);
  return fault ? fault->what : "";
}

int unusable(const std::string& text) {
  std::fprintf(stderr, "distrun: %s\n", printable_lines(text).c_str());
  return exit_code::kUnusable;
}

Result<std::unique_ptr<net::SecureSocket>> dial_any(const std::vector<std::string>& addresses, const net::JobKey& key,
                                                    const net::Hello& hello, TimePoint deadline) {
  std::string tried;
  for (const std::string& address : addresses) {
    auto socket = net::connect_secure(address, key, hello, std::min(deadline, deadline_after(kOneAddress)));
    if (socket.ok()) return socket;
    tried += "\n  " + address + ": " + socket.status().message();
  }
  return Status(Errc::kRankLost, "this host cannot reach the launcher. Choose its interface with --network" + tried);
}

// As the options of distrun: `--name value` or `--name=value`, with - or _ in the name, and each one once.
Status read_dial_options(const std::vector<std::string>& arguments, std::map<std::string, std::string>& given) {
  static const std::vector<std::string> names = {"--connect", "--key-file", "--host", "--timeout"};
  std::set<std::string> typed;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::size_t end = std::min(arguments[i].find('='), arguments[i].size());
    std::string name = arguments[i].substr(0, end);
    if (name.starts_with("--")) std::replace(name.begin(), name.end(), '_', '-');
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return {Errc::kInvalidArgument, arguments[i] + " is not an option of distrun agent" + did_you_mean(name, names)};
    }
    const bool attached = end < arguments[i].size();
    if (!attached && ++i == arguments.size()) return {Errc::kInvalidArgument, name + " needs a value"};
    if (!typed.insert(name).second) {
      return {Errc::kInvalidArgument, name + " is given twice: leave one of them out"};
    }
    given[name] = attached ? arguments[i].substr(end + 1) : arguments[i];
    if (given[name].empty()) {
      return {Errc::kInvalidArgument, name + " has an empty value. Is a variable of the shell not set?"};
    }
  }
  return {};
}

int dial_main(const std::vector<std::string>& arguments, const Environment& environment) {
  const std::string own_name = net::host_name();
  std::map<std::string, std::string> given = {{"--host", own_name.empty() ? "host" : own_name}, {"--timeout", "300"}};
  if (const Status read = read_dial_options(arguments, given); !read.ok()) return wrong(read.message());
  if (given["--connect"].empty()) return wrong("--connect HEAD:PORT is missing");
  const auto head = net::parse_address(given["--connect"]);
  if (!head.ok()) return wrong(head.status().message());
  if (head->kind == net::Address::Kind::kTcp && head->port == 0) {
    return wrong("--connect " + given["--connect"] +
                 ": nothing listens at port 0. The head prints its port: waiting for N agents at HOST:PORT");
  }
  const auto seconds = parse_number(given["--timeout"], 1, 1 << 20);
  if (!seconds)
    return wrong("--timeout " + given["--timeout"] + " is not a number of seconds: write a whole number, 1 or more");
  if (const std::string fault = fault_of_host_name(given["--host"]); !fault.empty()) {
    return wrong("--host " + in_quotes(given["--host"]) + ": " + fault +
                 ". Give this host a name with --host, a different one on each host");
  }
  const auto inherited = environment.find("DISTRUN_KEY_FILE");
  const bool by_flag = !given["--key-file"].empty();
  if (!by_flag && inherited == environment.end()) return wrong("--key-file FILE is missing");
  if (const std::string fault = fault_of_home(given["--key-file"], environment); !fault.empty()) {
    return wrong("--key-file " + given["--key-file"] + ": " + fault);
  }
  const auto key = net::key_from_file(from_home(by_flag ? given["--key-file"] : inherited->second, environment),
                                      by_flag ? "--key-file" : inherited->first);
  if (!key.ok()) return unusable(key.status().message());
  ::signal(SIGPIPE, SIG_IGN);
  LeaseEnd lease_end = LeaseEnd::shared();
  if (const std::optional<int> code = stand_guard(OrdersBy::kConnection, lease_end)) return *code;
  auto socket = dial(given["--connect"], *key, given["--host"], deadline_after(*seconds));
  if (!socket.ok()) return unusable(socket.status().message());
  auto agent = Agent::create(FramePipe(*std::move(socket)), std::move(lease_end));
  if (!agent.ok()) return exit_code::kInternal;
  (*agent)->run();
  return (*agent)->exit_code();
}

}  // namespace distrun::launcher
