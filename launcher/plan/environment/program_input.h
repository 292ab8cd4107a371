// Programs that come from standard input, as in `python - <<EOF`. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

// True if the command starts an interpreter that reads its program from standard input: `python`, `python -u -`,
// `bash -s x`, `perl /dev/stdin`, `awk -f -`, also in `sh -c '...'` and behind any other command. False if that is
// unclear.
bool reads_program_from_input(const std::vector<std::string>& command);

// True for - and the files that are standard input: /dev/stdin, /dev/fd/0.
bool names_standard_input(std::string_view word);

// The script that an interpreter at the start of the command reads, as an index of the command: 2 in `python -u x.py`.
std::optional<std::size_t> script_of(const std::vector<std::string>& command);

}  // namespace distrun::launcher
