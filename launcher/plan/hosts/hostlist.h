// Names of many hosts in Slurm's notation: "node[01-04,7],r[1-2]n[1-9]-ib". Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/hosts/text.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

inline constexpr std::size_t kMaxHosts = 100'000;  // of one list; checked before names are made
inline constexpr std::size_t kMaxHostName = 253;   // DNS allows no longer name

// What is wrong with one name or user name. Only letters, digits, '.', '_' and '-', not first '.' or '-': a name
// reaches ssh as a word of its own and must never be an option, a shell's text or two words.
std::optional<Fault> check_host_name(std::string_view name);

// The end of the item that starts at `start`: the next comma outside brackets, or the end of the text.
std::size_t hostlist_item_end(std::string_view text, std::size_t start);

// Appends the names of one item, at most `most`. Besides what `scontrol show hostnames` takes, text may follow the last
// bracket ("node[1-2]-ib"); unlike there, an empty item, an open range ("[1-]") and blanks are faults.
std::optional<Fault> expand_hostlist_item(std::string_view item, std::size_t most, std::vector<std::string>& names);

// All names of a list in the order of `scontrol show hostnames`, which is that of Slurm's other lists by host. `where`
// names the text in errors.
Result<std::vector<std::string>> parse_hostlist(std::string_view text, std::string_view where);

// The reverse: as few items as keep the order.
std::vector<std::string> compress_hostlist(const std::vector<std::string>& names);

}  // namespace distrun::launcher
