// Makes a group's ring. Every member listens, publishes its address, connects to its right neighbour and accepts its
// left neighbour. Blocks, at most until the deadline.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/backend/factory.h"
#include "runtime/backend/protection.h"
#include "runtime/base/system/fork_guard.h"

namespace distrun::backend::tcp {

// The protocol version that members compare in the handshake. Change the number when the protocol changes.
inline constexpr const char* kRingVersion = "tcp ring 2";
// The version for a group whose connections between hosts are protected by `suite`; none: all are plain.
std::string ring_version(const std::optional<net::RecordSuite>& suite);

// The prefix of the store keys through which the members of a group meet.
inline std::string keys_of(const std::string& group) { return "tcp/" + group + "/"; }

// The address to listen on, with any free port: "10.0.0.7:0".
std::string any_port_of(const std::string& host);

struct Ring {
  std::size_t size = 1;
  std::size_t index = 0;
  int rank = -1;  // world ranks; -1 in a group of one
  int left_rank = -1;
  int right_rank = -1;
  GuardedFd left;   // authenticated, non-blocking
  GuardedFd right;  // authenticated, non-blocking
  Duration host_timeout = Duration::max();
  Protection protection{};  // for all connections of the group
  // The protection of `left` and `right`; null: plain.
  std::unique_ptr<net::RecordLayer> left_records{}, right_records{};
};

// Collective over the group. All members get a ring, or all get an error that names the member that failed.
Result<Ring> make_ring(const GroupSpec& group, const Services& services, TimePoint deadline);

}  // namespace distrun::backend::tcp
