// The command lines that start an agent on another host. Pure. Host names and options are single words of argv, never
// text for a shell. The text for the remote shell is constant except for one quoted path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/options.h"
#include "runtime/base/link_end.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// One word for a POSIX shell, for any bytes except NUL, which no argument can hold.
std::string shell_quote(std::string_view text);

// Splits a command into words as a shell would: blanks, '...', "..." and backslashes. Nothing is expanded. An
// unfinished quote is an error.
Result<std::vector<std::string>> split_words(std::string_view text);

// The command for a host: `binary agent <how>` if that file exists there, else the distrun in PATH. Login shells can
// run it unchanged: sh and compatible shells, csh, fish from 3.0. A separate sh would cost another program start, some
// milliseconds on a virtual machine. `how`: "--guard", or "--join" for an agent that reads its head's address from
// standard input.
std::string agent_command(const std::string& binary, const char* how);

// The same for a launcher that takes separate words and no shell text: `binary agent --mpi words...`.
std::vector<std::string> wrapper_command(const std::string& binary, const std::vector<std::string>& words);

// The version of OpenSSH from the output of `ssh -V`: 902 for 9.2. 0 for other programs, whose options are not known.
int ssh_version(std::string_view printed);
// {"ssh", ...}. ssh's configuration and host-key policy stay the user's, except for options that are only right for a
// login. `version`: as in ssh_version(), because ssh refuses options that are newer than itself.
std::vector<std::string> ssh_argv(const SshOptions& options, const std::string& user, const std::string& host,
                                  const std::string& command, int version);

// --launch-with: the words of `pattern` with {host}, {agent} and {user} replaced inside them. Errors: {agent} is
// missing, {user} is missing but the host has a user, or {user} is given but the host has none.
Result<std::vector<std::string>> launch_argv(std::string_view pattern, const std::string& user, const std::string& host,
                                             const std::string& command);

inline constexpr int kSshItself = 255;  // ssh's exit code for its own failures
// Ends the line about the first failure of a host that may come later.
inline constexpr const char* kTriesAgain = ". distrun tries it again until --start-timeout is over";

// How a command has ended that should start an agent on a host, or how far it has come.
struct CommandEnd {
  int exit_code = 0;
  std::string printed;    // on both streams, without the messages of the agent
  bool by_ssh = false;    // distrun's own ssh, not a command with other options and other errors
  bool greeted = false;   // the agent has run
  bool answered = false;  // it has answered its first order
};
// True if another attempt may succeed, because a server refused the connection only for a moment.
bool ssh_may_pass(int exit_code, std::string_view printed);
// False if the host must be changed before another attempt can succeed: ssh has no key that it takes, its own key is
// not known, or distrun is not installed there.
bool may_come_later(const CommandEnd& end);
// The line in which another program's ssh reported that it cannot reach a host; some of these programs then wait for
// ever. Empty if there is none. Its other output may include banners of hosts that it did reach.
std::string_view failed_ssh(std::string_view printed);
inline bool ssh_gave_up(std::string_view printed) { return !failed_ssh(printed).empty(); }
// Why no agent could be started on a host, and what the user can do.
std::string start_failure(const CommandEnd& end);

// Why ssh runs and no agent comes: what the login shell does instead.
enum class LoginFault {
  kWaits,       // with no input it starts the agent
  kEnds,        // with no input it ends, and does not start the agent
  kRedirected,  // the agent runs, and its output comes on standard error
  kPrints,      // it prints more than may come before the agent
};
std::string login_failure(LoginFault fault, const std::string& printed);
// True if this output of ssh says that it did not log in, or could not.
bool ssh_did_not_log_in(std::string_view printed);

// The same for a command that runs, of a host that has not answered for `seconds`. `path`: see path_of_carrier().
std::string no_answer(double seconds, const CommandEnd& command, LinkEnd path);
// "small messages pass, large ones do not: check the MTU"; empty if the path is not known to be at fault.
std::string path_fault(LinkEnd path);

}  // namespace distrun::launcher
