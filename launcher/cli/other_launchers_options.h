// Options of other launchers (horovodrun, mpirun, mpiexec, torchrun, srun, ...): what to type instead of those that
// distrun does not have, and spellings of theirs for those that it has. Both are tables.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace distrun::launcher {

struct OtherLaunchersOption {
  std::string_view name;  // without dashes in front, and with - for _; with one dash: spelt with one only
  int values;             // this many words behind it are its own, unless it is spelt NAME=VALUE
  std::string_view instead;
};

std::span<const OtherLaunchersOption> other_launchers_options();
// The one that `word` spells, with one dash or two, or nullptr.
const OtherLaunchersOption* find_other_launchers_option(std::string_view word);

// "--num-proc" for "-np", "-np=4" and "-np4" with its value; other words stay as they are.
std::string in_our_spelling(const std::string& word);

}  // namespace distrun::launcher
