// Which hosts, with how many slots: -H and the hostfile dialects (Open MPI "h slots=4", "h:4", PBS's repeated lines).
// Pure: text in, values or an error with line, column and caret out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace distrun::launcher {

struct HostSlots {
  std::string name;          // as the user wrote it, without brackets
  std::string user;          // of user@host, or empty
  std::optional<int> slots;  // absent: as many as the host has GPUs, else cores
  int max_slots = 0;         // 0: no limit
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

inline constexpr int kMaxRanks = 1 << 20;  // of a job; also the largest slot count

// "h1:4,h2,[::1]:2,me@h3:8"
Result<std::vector<HostSlots>> parse_hosts(std::string_view text);
// `file` is only for error texts. Hosts that appear again add their slots.
Result<std::vector<HostSlots>> parse_hostfile(std::string_view text, const std::string& file);

}  // namespace distrun::launcher
