// Protection of a group's connections, as requested by --encrypt and --checksum. It covers connections between hosts.
// Connections inside a host stay plain.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/backend/factory.h"
#include "runtime/base/fd.h"
#include "runtime/net/secure/record_cipher.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::backend {

// The option that asks for protection, "--encrypt" or "--checksum". Empty if neither is set, or if the job has one
// host.
std::string asked_protection(const Services& services);

// The world ranks of the group that share memory with this rank on its host, as far as this member sees. Ascending,
// with this rank itself.
std::vector<int> ranks_here(const GroupSpec& group, const Services& services);

// The same on all members.
struct Protection {
  std::optional<net::RecordSuite> suite;  // none: all connections are plain
  std::vector<int> hosts;                 // by member: the lowest rank on the member's host
  // For the connection between two members; none: plain.
  [[nodiscard]] std::optional<net::RecordSuite> between(std::size_t one, std::size_t other) const;
};

// Collective over the group if an option asks for protection; otherwise returns without communication. `step` is as in
// agree(). Uses AES if every member has it.
Result<Protection> agree_on_protection(const std::string& step, const GroupSpec& group, const Services& services,
                                       TimePoint deadline);

// An authenticated connection, ready for use by a backend.
struct DataLink {
  Fd fd;                                      // non-blocking
  std::unique_ptr<net::RecordLayer> records;  // null: plain
};
Result<DataLink> take_over(net::SecureSocket& socket, const std::optional<net::RecordSuite>& suite);

}  // namespace distrun::backend
