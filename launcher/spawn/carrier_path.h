// Judges the network path to a host whose agent does not answer, from the connection of the process that carries the
// agent (ssh). ssh's key exchange is the first message that does not fit into small packets.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/link_end.h"
#include "runtime/net/bytes/socket.h"

namespace distrun::launcher {

// The other ends of the connections, among those with these inodes, whose sent bytes are sent again and again: more
// bytes than a small packet has. `table` is the text of /proc/PID/net/tcp or tcp6. Pure.
std::vector<net::Address> not_acknowledged(std::string_view table, const std::set<std::uint64_t>& inodes);

// kLargeSilent: bytes of this process are not acknowledged, and small packets to the same address all pass. kSilent:
// small packets are lost too. kUnknown: the process waits for no acknowledgement. Takes at most 1 s, so ask only for
// the first kMostPaths hosts.
LinkEnd path_of_carrier(pid_t pid);
inline constexpr std::size_t kMostPaths = 4;

}  // namespace distrun::launcher
