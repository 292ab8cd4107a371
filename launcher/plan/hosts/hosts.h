// Parses hosts and slots: -H and the hostfile dialects (Open MPI and DeepSpeed "h slots=4", MPICH and Horovod "h:4",
// PBS's repeated lines). Pure: takes text, and returns values or an error with line, column and caret.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/hosts/text.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

struct HostSlots {
  std::string name;          // valid for check_host_name(), or an IPv6 address without brackets
  std::string user;          // of user@host, or empty
  std::optional<int> slots;  // absent: one per GPU of the host, else one per core. 0: the job does not use it
  int max_slots = 0;         // 0: no limit
  // Slots if the host has no GPUs, instead of one per core. 0: one per core.
  int without_gpus = 0;
  // Nobody asked for this number of slots: it was counted by GPUs or cores, or is a scheduler's default.
  // --nproc-per-node replaces it.
  bool counted = false;
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

inline constexpr int kMaxRanks = 1 << 20;  // in a job; also the largest slot count

// Returns the fault of a user in user@host. Allows what directories of users have: "me@corp.example", "CORP\\me". A
// user is never an option or shell code.
std::optional<Fault> check_user_name(std::string_view name);

// The host as in -H, without slots: "me@node1", "[fe80::1]".
std::string spelt(const HostSlots& host);
// A list for -H, as short as its order allows: "node[01-04]:8,me@login:2".
std::string as_option(const std::vector<HostSlots>& hosts);

// Merges hosts of the same name and adds up their slots.
std::vector<HostSlots> merge_same_names(std::vector<HostSlots> hosts);

// Removes hosts with 0 slots. Returns a sentence about them, or an empty text.
std::string leave_out_without_slots(std::vector<HostSlots>& hosts);

// Parses "h1:4,h2,me@node[01-04]:8,[fe80::1]:2,::1". If a host appears again, its slots are added.
Result<std::vector<HostSlots>> parse_hosts(std::string_view text);
// Parses one host or hostlist per line, in any of the dialects. `file` is only used in error texts. If lines are
// repeated and no line has slots, each line is one slot.
Result<std::vector<HostSlots>> parse_hostfile(std::string_view text, const std::string& file);

}  // namespace distrun::launcher
