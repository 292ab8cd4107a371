// Makes a group's ring: every member listens, publishes its address, connects to its right neighbour and accepts its
// left one. Blocks until the deadline at most.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/backend/factory.h"
#include "runtime/backend/protection.h"
#include "runtime/base/system/fork_guard.h"

namespace distrun::backend::tcp {

// What members tell each other in the handshake; a change of how they talk changes the number.
inline constexpr const char* kRingVersion = "tcp ring 2";
// The same in a group whose connections to other hosts `suite` protects; none: all are plain.
std::string ring_version(const std::optional<net::RecordSuite>& suite);

// How the keys of a group begin, by which its members meet in the store.
inline std::string keys_of(const std::string& group) { return "tcp/" + group + "/"; }

// Where to listen on this host: "10.0.0.7:0".
std::string any_port_of(const std::string& host);

struct Ring {
  std::size_t size = 1;
  std::size_t index = 0;
  int rank = -1;  // world ranks; -1 in a group of one
  int left_rank = -1;
  int right_rank = -1;
  GuardedFd left;   // authenticated, non-blocking
  GuardedFd right;  // the same
  Duration host_timeout = Duration::max();
  Protection protection{};  // of all the group's connections
  // What protects the two; null: they are plain.
  std::unique_ptr<net::RecordLayer> left_records{}, right_records{};
};

// Collective over the group; all members get a ring, or all get an error that names the member that failed.
Result<Ring> make_ring(const GroupSpec& group, const Services& services, TimePoint deadline);

}  // namespace distrun::backend::tcp
