// What this process may still take of its host: memory before the kernel would kill somebody, and cores. Read from
// /proc and the control groups (version 1 and 2), since a refused allocation can be told to the user and an
// out-of-memory kill cannot. `sysroot` is "" or a copied tree (tests).
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/status.h"

namespace distrun::net {

// ok if `bytes` more fit below the limits on memory, on file size (RLIMIT_FSIZE counts for memfd, and exceeding it
// raises SIGXFSZ) and below what is free; otherwise kOutOfMemory naming the limit and its value.
Status check_memory(std::uint64_t bytes, const std::string& sysroot = "");

// The cores that one rank may run on, and a quota below that, if any.
struct CoreShare {
  static constexpr int kMaxCores = 2048;
  std::bitset<kMaxCores> cores;    // affinity mask
  std::uint64_t quota_owner = 0;   // which control group limits it (a hash of device, inode); 0: none does
  std::uint64_t quota_millis = 0;  // its limit in thousandths of a core
};
CoreShare core_share(const std::string& sysroot = "");

// True if these ranks, each with one running thread, cannot all run at the same time: more ranks than cores in some
// rank's mask or in all masks together, or a control group's quota is below the number of its ranks.
bool oversubscribed(std::span<const CoreShare> ranks);

}  // namespace distrun::net
