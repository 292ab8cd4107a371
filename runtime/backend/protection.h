// What --encrypt and --checksum ask for: how the connections of a group that lead to other hosts are protected. Those
// inside of a host stay plain.
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

// The option that asks for protection, "--encrypt" or "--checksum"; empty: none does, or the job has one host.
std::string asked_protection(const Services& services);

// World ranks of the group that share this host's memory, as far as this member sees; ascending, with itself.
std::vector<int> ranks_here(const GroupSpec& group, const Services& services);

// The same on all members.
struct Protection {
  std::optional<net::RecordSuite> suite;  // none: all connections are plain
  std::vector<int> hosts;                 // by member: the lowest rank of those that share its host
  // Of the connection between two members.
  [[nodiscard]] std::optional<net::RecordSuite> between(std::size_t one, std::size_t other) const;
};

// Collective over the group where something is asked for, and nothing where not. `step` is as in agree(). AES where
// every member has it.
Result<Protection> agree_on_protection(const std::string& step, const GroupSpec& group, const Services& services,
                                       TimePoint deadline);

// An authenticated connection as its bulk user takes it over.
struct DataLink {
  Fd fd;                                      // non-blocking
  std::unique_ptr<net::RecordLayer> records;  // null: plain
};
Result<DataLink> take_over(net::SecureSocket& socket, const std::optional<net::RecordSuite>& suite);

}  // namespace distrun::backend
