// The command lines by which an agent is started elsewhere. Pure. Host names and options are single words of argv,
// never text that a shell reads; what the remote shell does read is constant but for one quoted path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/options.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// One word for a POSIX shell, whatever the bytes are (but for NUL, which no argument can hold).
std::string shell_quote(std::string_view text);

// The words of a command as a shell would split them: blanks, '...', "..." and backslashes; nothing is expanded. An
// unfinished quote is an error.
Result<std::vector<std::string>> split_words(std::string_view text);

// What runs on a host: `binary agent <how>` if that file exists there, else the distrun on PATH. Login shells can run
// it as it is: sh and its kin, csh, fish from 3.0; a shell of its own between would cost another program's start, on a
// virtual machine some milliseconds. `how`: "--guard", or "--join" for an agent that finds on its standard input where
// its head is.
std::string agent_command(const std::string& binary, const char* how);

// The same for a launcher that takes words and no shell's text: `binary agent --mpi words...`.
std::vector<std::string> wrapper_command(const std::string& binary, const std::vector<std::string>& words);

// {"ssh", ...}; ssh's configuration and host-key policy are the user's.
std::vector<std::string> ssh_argv(const SshOptions& options, const std::string& user, const std::string& host,
                                  const std::string& command);

// --launch-with: the words of `pattern` with {host}, {agent} and {user} replaced inside them. An error says which is
// missing: {agent}, or {user} where the host has a user, or a user where it has none.
Result<std::vector<std::string>> launch_argv(std::string_view pattern, const std::string& user, const std::string& host,
                                             const std::string& command);

// Whether it is worth another try: a server that turns connections away for a moment.
bool ssh_may_pass(int exit_code, std::string_view printed);
// Whether the ssh that another program runs has said that it cannot reach a host: some programs then wait for ever.
// Among all else that it printed are banners of hosts that it did reach.
bool ssh_gave_up(std::string_view printed);
// What is the matter with a host on which no agent could be started, and what to do, from the exit code and what was
// printed. `by_ssh`: by an ssh of ours, not by a command that has other ways and other options.
std::string start_failure(int exit_code, std::string_view printed, bool by_ssh);
// The same of one from which nothing has come for so many seconds.
std::string no_answer(double seconds, std::string_view printed, bool by_ssh);

}  // namespace distrun::launcher
