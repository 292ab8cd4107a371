// The command that ranks run. Scripts and modules run with the Python of the user's environment, other commands as
// typed.
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
  std::string reason;  // which Python distrun has chosen, as in "the first Python in PATH"; or empty
  std::string note;    // for the user, if PATH and a variable name different Pythons; or empty
  // The script that Python will run, also if the user typed the Python. Empty if that is unclear.
  std::string source;
  std::string python;  // the Python that runs it, or that would run a script
};

// `invoked_as` is argv[0] of distrun. A Python in the same folder belongs to the same environment.
Command resolve_command(const Options& options, const Environment& environment, const std::string& invoked_as);

// A note about arguments that torchrun would pass on differently, or empty.
std::string note_on_dashes(const Options& options);

// Inserts modules of distrun before the script or module of a Python command. distrun._keras3_mwms patches Keras 3
// (--tf-keras3-mwms), distrun._torch_backend serves --torch-backend. Both options fail if the command does not say
// which Python program it runs. If `protects` is set (tensors are encrypted or have checksums), Python programs also
// run through distrun._protected.
Result<std::vector<std::string>> amended(const Options& options, bool protects, std::vector<std::string> words);

}  // namespace distrun::launcher
