// Makes Options of the words of the command line and the lines of the config file.
#pragma once

#include <string>
#include <vector>

#include "launcher/options.h"

namespace distrun::launcher {

// The options of a job to run, or a text for the user with an exit code.
struct ParseOutcome {
  Options options;
  bool run = false;
  std::string text;
  int exit_code = 0;
};

ParseOutcome parse_arguments(const std::vector<std::string>& arguments);

}  // namespace distrun::launcher
