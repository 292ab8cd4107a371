// What `distrun --help`, `distrun check --help`, `distrun agent --help` and `distrun help` print.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/help/texts.h"

namespace distrun::launcher {

struct HelpAnswer {
  std::string text;
  int exit_code = 0;
};

constexpr std::size_t kHelpColumns = 100;

// One line for each option. No line is longer than kHelpColumns.
std::string help_text(HelpOf command);

// `words` is what follows `distrun help`: names of topics or options, or nothing. A name that is not known gives an
// error with the nearest name and the list of topics.
HelpAnswer help_about(const std::vector<std::string>& words);

}  // namespace distrun::launcher
