#include "launcher/spawn/remote_command.h"

#include <algorithm>

#include "launcher/plan/hosts/text.h"
#include "launcher/spawn/frames.h"
#include "runtime/base/ended_link.h"

namespace distrun::launcher {
namespace {

// Long enough for a host under load, short enough that the user still waits when a dead host is reported.
constexpr const char* kConnectTimeout = "ConnectTimeout=10";
constexpr int kNoSuchCommand = 127;
constexpr int kSignalBase = 128;  // added to the signal in the exit code of a program that a signal ended

// What distrun runs by ssh is no login: it needs its own command, standard input and output, and no terminal. ssh takes
// the first value of an option, so these override the user's configuration. A shared connection would be kept by a
// process below this one. It would end with the job, and so would the other sessions on it. An existing shared
// connection may be used. With LogLevel=QUIET the reason of a failure would be missing, and with DEBUG it would be
// hidden among other lines.
struct LoginOption {
  const char* option;
  int since;  // the version of OpenSSH that introduced it
};
constexpr LoginOption kOfNoLogin[] = {{"BatchMode=yes", 0},
                                      {kConnectTimeout, 0},
                                      {"ClearAllForwardings=yes", 0},
                                      {"PermitLocalCommand=no", 0},
                                      {"ControlMaster=no", 0},
                                      {"Tunnel=no", 0},
                                      {"LogLevel=INFO", 0},
                                      {"RemoteCommand=none", 706},
                                      {"SessionType=default", 807},
                                      {"StdinNull=no", 807},
                                      {"ForkAfterAuthentication=no", 807}};

bool replace(std::string& text, std::string_view what, const std::string& by) {
  bool any = false;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
    any = true;
  }
  return any;
}

// Only the last lines matter; banners come before them.
std::string last_lines(std::string_view printed) {
  constexpr std::size_t kMost = 600;
  std::string_view text = trim(printed);
  if (text.size() > kMost) text.remove_prefix(text.size() - kMost);
  std::string out(text);
  std::erase(out, '\r');
  return printable_lines(out);
}

// bash, zsh, ksh and sh read some of these before they run the command of ssh; csh and fish have others.
constexpr std::string_view kStartUpFiles = "the start-up files of the login shell on that host (~/.bashrc, ~/.profile)";

// srun prints what is wrong and exits with 1.
std::string cure_of_srun(std::string_view printed) {
  const auto says = [printed](std::string_view text) { return printed.find(text) != std::string_view::npos; };
  if (!says("srun: error:") && !says("srun: fatal:")) return "";
  const bool over = says("Invalid job id") || says("Expired or invalid job") || says("already completed");
  return std::string(over ? "the job is over, but its variables are still set in this shell" : "srun cannot start it") +
         ". To run without Slurm, add --no-detect, or also -H to reach other hosts by ssh";
}

std::string cure_of(std::string_view printed) {
  const auto says = [printed](std::string_view text) { return printed.find(text) != std::string_view::npos; };
  // ssh also prints the line that is searched for next, but accept-new does not help here.
  if (says("has changed and you have requested strict checking")) {
    return "its key differs from the one in known_hosts: find out why. If the host was installed again, type "
           "`ssh-keygen -R HOST`, with the name in that line, and connect once with ssh";
  }
  if (says("Host key verification failed")) {
    return "its key is not known on this machine: connect once with ssh, or add --ssh-option "
           "StrictHostKeyChecking=accept-new";
  }
  if (says("Permission denied")) {
    return "`ssh` to this host must work without a password: use ssh-copy-id, ssh-agent or --ssh-identity";
  }
  if (says("Could not resolve hostname")) return "check the name in -H or in the hostfile";
  if (says("timed out") || says("No route to host")) return "check that the host and its network are up";
  if (says("Connection refused")) return "check that an ssh server runs on this host, at this port (--ssh-port)";
  return "";
}

std::string silent_end(const CommandEnd& end) {
  if (!end.by_ssh || end.exit_code != kSshItself) return "its agent ended with code " + std::to_string(end.exit_code);
  if (end.greeted) return "ssh ended without a message. Was the agent on that host killed?";
  return "ssh ended without a message, before the agent began. Was the login shell killed on that host? Check " +
         std::string(kStartUpFiles);
}

}  // namespace

std::string shell_quote(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

Result<std::vector<std::string>> split_words(std::string_view text) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool blank = c == ' ' || c == '\t' || c == '\n';
    if (quote == 0 && blank) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      words.back() += text[++i];
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) return Status(Errc::kInvalidArgument, std::string("the quote ") + quote + " is not closed");
  return words;
}

std::string agent_command(const std::string& binary, const char* how) {
  const std::string path = shell_quote(binary);
  const std::string agent = std::string(" agent ") + how;
  return "test -x " + path + " && exec " + path + agent + " || exec distrun" + agent;
}

std::vector<std::string> wrapper_command(const std::string& binary, const std::vector<std::string>& words) {
  const std::string path = shell_quote(binary);
  const std::string script =
      "if [ -x " + path + " ]; then exec " + path + " agent --mpi \"$@\"; else exec distrun agent --mpi \"$@\"; fi";
  std::vector<std::string> out = {"/bin/sh", "-c", script, "distrun"};
  out.insert(out.end(), words.begin(), words.end());
  return out;
}

int ssh_version(std::string_view printed) {
  constexpr std::string_view kName = "OpenSSH_";
  const std::size_t start = printed.find(kName);
  if (start == std::string_view::npos) return 0;
  // "OpenSSH_9.2p1 Debian-2", "OpenSSH_for_Windows_8.1p1"
  std::string_view rest = printed.substr(start);
  rest.remove_prefix(std::min(rest.find_first_of("0123456789"), rest.size()));
  const std::size_t dot = std::min(rest.find('.'), rest.size());
  const std::string_view minor = rest.substr(std::min(dot + 1, rest.size()));
  const auto first = parse_number(rest.substr(0, dot), 1, 99);
  const auto second = parse_number(minor.substr(0, minor.find_first_not_of("0123456789")), 0, 99);
  return first && second ? *first * 100 + *second : 0;
}

std::vector<std::string> ssh_argv(const SshOptions& options, const std::string& user, const std::string& host,
                                  const std::string& command, int version) {
  // No terminal, no forwarding, and no question that the user could not answer. The user's own -o options come first,
  // because ssh uses the first value of an option.
  std::vector<std::string> argv = {"ssh", "-T", "-x", "-a"};
  for (const std::string& option : options.options) argv.insert(argv.end(), {"-o", option});
  for (const LoginOption& row : kOfNoLogin) {
    if (row.since <= version) argv.insert(argv.end(), {"-o", row.option});
  }
  if (options.port != 0) argv.insert(argv.end(), {"-p", std::to_string(options.port)});
  if (!options.identity.empty()) argv.insert(argv.end(), {"-i", options.identity});
  if (!user.empty()) argv.insert(argv.end(), {"-l", user});
  argv.insert(argv.end(), {"--", host, command});
  return argv;
}

Result<std::vector<std::string>> launch_argv(std::string_view pattern, const std::string& user, const std::string& host,
                                             const std::string& command) {
  auto words = split_words(pattern);
  if (!words.ok()) return words.status().with_context("--launch-with");
  bool agent = false;
  bool with_user = false;
  for (std::string& word : *words) {
    with_user = replace(word, "{user}", user) || with_user;
    replace(word, "{host}", host);
    agent = replace(word, "{agent}", command) || agent;
  }
  if (!agent) {
    return Status(Errc::kInvalidArgument,
                  "--launch-with needs {agent}: write a command that starts a program on {host}, as in "
                  "--launch-with 'kubectl exec -i {host} -- sh -c {agent}'");
  }
  if (with_user == user.empty()) {
    return Status(Errc::kInvalidArgument,
                  user.empty() ? "--launch-with has {user}, but host " + host + " has no user: write user@" + host
                               : "--launch-with needs {user}, because of " + user + "@" + host +
                                     ": write it as in --launch-with 'ssh -l {user} {host} {agent}'");
  }
  return words;
}

bool ssh_may_pass(int exit_code, std::string_view printed) {
  if (exit_code != kSshItself) return false;
  constexpr std::string_view kSigns[] = {"kex_exchange_identification", "banner exchange", "Connection reset",
                                         "Connection closed", "Exceeded MaxStartups"};
  return std::any_of(std::begin(kSigns), std::end(kSigns),
                     [printed](std::string_view sign) { return printed.find(sign) != std::string_view::npos; });
}

bool may_come_later(const CommandEnd& end) {
  if (end.exit_code == kNoSuchCommand) return false;
  if (!end.by_ssh || end.greeted || end.exit_code != kSshItself) return true;
  constexpr std::string_view kForGood[] = {"Permission denied", "Too many authentication failures",
                                           "Host key verification failed", "no matching host key type",
                                           "No supported authentication methods"};
  return std::none_of(std::begin(kForGood), std::end(kForGood),
                      [&end](std::string_view sign) { return end.printed.find(sign) != std::string::npos; });
}

bool ssh_did_not_log_in(std::string_view printed) { return ssh_gave_up(printed) || ssh_may_pass(kSshItself, printed); }

std::string_view failed_ssh(std::string_view printed) {
  constexpr std::string_view kBeginnings[] = {"ssh: connect to host ", "ssh: Could not resolve hostname ",
                                              "Host key verification failed",
                                              "Connection timed out during banner exchange"};
  constexpr std::string_view kNoLogin = ": Permission denied (";
  while (!printed.empty()) {
    const std::string_view line = printed.substr(0, printed.find('\n'));
    printed.remove_prefix(std::min(line.size() + 1, printed.size()));
    if (std::any_of(std::begin(kBeginnings), std::end(kBeginnings),
                    [line](std::string_view text) { return line.starts_with(text); })) {
      return trim(line);
    }
    const std::string_view who = line.substr(0, line.find(kNoLogin));
    if (who.size() < line.size() && who.find('@') != std::string_view::npos && who.find(' ') == std::string_view::npos)
      return trim(line);
  }
  return {};
}

std::string start_failure(const CommandEnd& end) {
  const auto& [exit_code, printed, by_ssh, greeted, answered] = end;
  const std::string text = last_lines(printed);
  if (exit_code == kNoSuchCommand) {
    return "distrun is not installed on this host, neither at the same path nor in PATH. Install the same version" +
           (text.empty() ? "" : " (" + text + ")");
  }
  if (text.empty() && exit_code > kSignalBase && exit_code < kSshItself) {
    return "its agent was killed by signal " + std::to_string(exit_code - kSignalBase);
  }
  if (by_ssh && !greeted && exit_code != kSshItself) {
    return "its login shell ended with code " + std::to_string(exit_code) + " and did not start the agent. Check " +
           std::string(kStartUpFiles) + ": do they exit, or start another program?" +
           (text.empty() ? "" : " It printed: " + text);
  }
  // An agent ends by itself only at the end of its input.
  if (greeted && !answered && exit_code == 0) {
    return "its agent runs, but its standard input is at its end. " +
           (by_ssh ? "Check " + std::string(kStartUpFiles) + ": do they redirect it (exec </dev/null)?"
                   : "Does the command that starts the agent pass its input on, as kubectl exec -i does?") +
           (text.empty() ? "" : " It printed: " + text);
  }
  const std::string why = text.empty() ? silent_end(end) : text;
  const std::string cure = by_ssh ? cure_of(printed) : cure_of_srun(printed);
  return cure.empty() ? why : why + "; " + cure;
}

std::string login_failure(LoginFault fault, const std::string& printed) {
  const std::string files = std::string(kStartUpFiles);
  const std::string said = last_lines(printed);
  const std::string tail = said.empty() ? "" : " It printed: " + said;
  switch (fault) {
    case LoginFault::kWaits:
      return "its login shell waits for input and does not start the agent. Check " + files +
             ": does a command there read input?" + tail;
    case LoginFault::kEnds:
      return "its login shell does not start the agent. Check " + files +
             ": do they start another shell or program, or redirect standard output? They may do so in interactive "
             "shells only" +
             (tail.empty() ? "" : "." + tail);
    case LoginFault::kPrints:
      return std::string(kMuchNoise) + ". Check " + files + ": do they print it?" + tail;
    case LoginFault::kRedirected:
      break;
  }
  return "its agent runs, but its standard output comes on standard error. Check " + files +
         ": do they redirect it (exec 1>&2)?";
}

std::string path_fault(LinkEnd path) {
  if (path == LinkEnd::kLargeSilent) return kLargeMessagesLost;
  return path == LinkEnd::kSilent ? "packets to it are lost on the way" : "";
}

std::string no_answer(double seconds, const CommandEnd& command, LinkEnd path) {
  const std::string said = last_lines(command.printed);
  std::string silent;
  if (path != LinkEnd::kUnknown) {
    silent = ". Between this machine and it, " + path_fault(path);
  } else if (command.by_ssh && said.empty()) {
    // ssh's key exchange is the first message that does not fit into small packets.
    silent = ". If ssh -v hangs too, small packets pass and large ones do not: check the MTU";
  }
  return "its agent has not answered within " + seconds_text(seconds) +
         " s (--start-timeout). Check that programs start quickly on this host, and that its home folder is "
         "reachable" +
         (command.by_ssh && !command.greeted && path == LinkEnd::kUnknown
              ? ", and that " + std::string(kStartUpFiles) + " end quickly"
              : "") +
         silent + (said.empty() ? "" : ". The command that starts the agent has printed: " + said);
}

}  // namespace distrun::launcher
