// Options of other launchers (horovodrun, mpirun, mpiexec, torchrun, srun, ...) that distrun does not have, and what to
// type instead.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace distrun::launcher {

struct Habit {
  std::string_view name;  // without dashes in front, and with - for _; with one dash: spelt with one only
  int values;             // so many words behind it are its own, unless it is spelt NAME=VALUE
  std::string_view instead;
};

std::span<const Habit> habits();
// The one that `word` spells, with one dash or two, or nullptr.
const Habit* habit_of(std::string_view word);

}  // namespace distrun::launcher
