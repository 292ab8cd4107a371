// From the words of the command line and the lines of the config file to Options.
#pragma once

#include <string>
#include <vector>

#include "launcher/options.h"

namespace distrun::launcher {

// Either options of a job to run, or a text that answers the user, with the exit code.
struct ParseOutcome {
  Options options;
  bool run = false;
  std::string text;
  int exit_code = 0;
};

ParseOutcome parse_arguments(const std::vector<std::string>& arguments);

}  // namespace distrun::launcher
