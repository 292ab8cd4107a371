// The memory that this process may still allocate before the kernel kills a process, and its cores. Reads /proc and the
// control groups (versions 1 and 2). A refused allocation can be reported to the user; an out-of-memory kill cannot.
// `sysroot` is "" or a copied tree (for tests).
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/status.h"

namespace distrun::net {

// Ok if `bytes` more fit within the memory limits, the file size limit and the free memory. (RLIMIT_FSIZE applies to a
// memfd, and exceeding it raises SIGXFSZ.) Otherwise kOutOfMemory; the text names the limit and its value.
Status check_memory(std::uint64_t bytes, const std::string& sysroot = "");

// The cores that one rank may run on, and a smaller quota, if there is one.
struct CoreShare {
  static constexpr int kMaxCores = 2048;
  std::bitset<kMaxCores> cores;    // affinity mask
  std::uint64_t quota_owner = 0;   // the control group that sets the quota (a hash of device and inode); 0: none
  std::uint64_t quota_millis = 0;  // the quota in thousandths of a core
};
CoreShare core_share(const std::string& sysroot = "");

// True if these ranks, each with one running thread, cannot all run at the same time. Either a rank's mask or all masks
// together have fewer cores than ranks, or the quota of a control group is below the number of its ranks.
bool oversubscribed(std::span<const CoreShare> ranks);

}  // namespace distrun::net
