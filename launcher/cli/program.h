// The command that ranks run: as typed, or through the Python of the user's environment for scripts and modules.
#pragma once

#include <string>
#include <vector>

#include "launcher/options.h"
#include "runtime/base/environment.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

struct Command {
  std::vector<std::string> words;
  std::string script;  // a file that must exist, or empty
  std::string reason;  // why this Python, or empty
  std::string source;  // the script that a Python will run, also where the Python was typed; empty if that is not clear
  std::string python;  // that Python, or the one that a script would get
};

// `invoked_as` is our own argv[0]: the python that lies beside it belongs to the same environment.
Command resolve_command(const Options& options, const Environment& environment, const std::string& invoked_as);

// What differs from torchrun in how the program gets its arguments, or empty.
std::string note_on_dashes(const Options& options);

// `python train.py` by way of distrun._keras3_mwms, which runs it with Keras 3 mended (--tf-keras3-mwms), or of
// distrun._torch_backend (--torch-backend). Fails where the command does not say which Python program it runs. Where
// tensors are protected, Python programs are run by way of distrun._protected too.
Result<std::vector<std::string>> amended(const Options& options, bool protects, std::vector<std::string> words);

}  // namespace distrun::launcher
