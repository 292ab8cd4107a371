// Programs that come from standard input, as in `python - <<EOF`. Pure.
#pragma once

#include <string>
#include <vector>

namespace distrun::launcher {

// True if the command starts an interpreter that reads its program from standard input: `python`, `python -u -`,
// `bash -s x`, `perl /dev/stdin`, also behind a command such as `env` or `numactl`. False if that is unclear.
bool reads_program_from_input(const std::vector<std::string>& command);

}  // namespace distrun::launcher
