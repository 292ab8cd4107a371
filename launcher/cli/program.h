// The command that ranks run: as typed, or through the Python of the user's environment for scripts and modules.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "runtime/base/settings.h"

namespace distrun::launcher {

struct Command {
  std::vector<std::string> words;
  std::string script;  // a file that must exist, or empty
  std::string reason;  // why this Python, or empty
};

// `invoked_as` is our own argv[0]: the python that lies beside it belongs to the same environment.
Command resolve_command(const Options& options, const Environment& environment, const std::string& invoked_as);

}  // namespace distrun::launcher
