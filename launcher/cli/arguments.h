// Makes Options of the words of the command line and the lines of the config file.
#pragma once

#include <string>
#include <vector>

#include "launcher/options.h"
#include "runtime/base/environment.h"

namespace distrun::launcher {

// The options of a job to run, or a text for the user with an exit code.
struct ParseOutcome {
  Options options;
  bool run = false;
  std::string text;
  int exit_code = 0;
};

// `environment` has the home of the user, for paths that begin with ~.
ParseOutcome parse_arguments(const std::vector<std::string>& arguments, const Environment& environment = {});

}  // namespace distrun::launcher
