// Which hosts, with how many slots: -H and the hostfile dialects (Open MPI and DeepSpeed "h slots=4", MPICH and Horovod
// "h:4", PBS's repeated lines). Pure: text in, values or an error with line, column and caret out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace distrun::launcher {

struct HostSlots {
  std::string name;          // a name that check_host_name() accepts, or an IPv6 address without brackets
  std::string user;          // of user@host, or empty
  std::optional<int> slots;  // absent: as many as the host has GPUs, else cores
  int max_slots = 0;         // 0: no limit
  int without_gpus = 0;      // slots that a host without GPUs has, in the place of its cores; 0: as many as these
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

inline constexpr int kMaxRanks = 1 << 20;  // of a job; also the largest slot count

// As one writes it in -H, without slots: "me@node1", "[fe80::1]".
std::string spelt(const HostSlots& host);
// A whole list for -H, as short as its order allows: "node[01-04]:8,me@login:2".
std::string as_option(const std::vector<HostSlots>& hosts);

// Hosts that appear again add their slots.
std::vector<HostSlots> merge_same_names(std::vector<HostSlots> hosts);

// "h1:4,h2,me@node[01-04]:8,[fe80::1]:2,::1". A host that is named again adds its slots.
Result<std::vector<HostSlots>> parse_hosts(std::string_view text);
// One host or hostlist per line, in any of the dialects. `file` is only for error texts. Where lines are repeated and
// none gives slots, each line is one slot.
Result<std::vector<HostSlots>> parse_hostfile(std::string_view text, const std::string& file);

}  // namespace distrun::launcher
