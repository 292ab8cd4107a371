// Host names in Slurm's notation: "node[01-04,7],r[1-2]n[1-9]-ib". Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/hosts/text.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

inline constexpr std::size_t kMaxHosts = 100'000;  // in one list; checked before the names are made
inline constexpr std::size_t kMaxHostName = 253;   // limit of DNS

// Returns the fault of a host name or user name. Allows letters, digits, '.', '_' and '-', and the first character must
// not be '.' or '-'. ssh gets the name as one word, so it must never be an option, shell code or two words.
std::optional<Fault> check_host_name(std::string_view name);

// The end of the item that starts at `start`: the next comma outside of brackets, or the end of the text.
std::size_t hostlist_item_end(std::string_view text, std::size_t start);

// Appends the names of one item, at most `most`. Takes what `scontrol show hostnames` takes, and also text after the
// last bracket ("node[1-2]-ib"). Unlike scontrol, it reports an empty item, an open range ("[1-]") and blanks as
// faults.
std::optional<Fault> expand_hostlist_item(std::string_view item, std::size_t most, std::vector<std::string>& names);

// All names of a list, in the order of `scontrol show hostnames`. Slurm's other lists by host have the same order.
// `where` names the text in errors.
Result<std::vector<std::string>> parse_hostlist(std::string_view text, std::string_view where);

// The reverse: returns as few items as possible while it keeps the order.
std::vector<std::string> compress_hostlist(const std::vector<std::string>& names);

}  // namespace distrun::launcher
