// Two tables about the options of other launchers (horovodrun, mpirun, mpiexec, torchrun, srun, ...). The first says
// what to type instead of an option that distrun lacks. The second maps other spellings to distrun's own.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace distrun::launcher {

struct OtherLaunchersOption {
  // Without leading dashes, and with - for _. A name with one leading dash matches that spelling only.
  std::string_view name;
  int values;  // how many words after it are its values, unless it is NAME=VALUE
  std::string_view instead;
};

std::span<const OtherLaunchersOption> other_launchers_options();
// Finds the option that `word` spells, with one dash or two. Returns nullptr if there is none.
const OtherLaunchersOption* find_other_launchers_option(std::string_view word);

// Turns "-np", "-np=4" and "-np4" into "--num-proc" with the same value, and '_' in the name of a long option into '-'.
// Returns other words unchanged.
std::string in_our_spelling(const std::string& word);

}  // namespace distrun::launcher
