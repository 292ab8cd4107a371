// The data that rank 0 gives to the other ranks if distrun did not launch them: the addresses of the store, and the
// job's key and name. It is sent as one word through the exchange of the launcher. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"

namespace distrun::net {

struct StoreContact {
  std::string job_id;
  JobKey key;
  std::vector<std::string> addresses;  // numeric addresses of rank 0's host, best first; at least one
  std::uint16_t port = 0;
};

inline constexpr std::size_t kMaxContactAddresses = 8;

// At most kMaxSharedText characters; the name of the job is cut if necessary.
std::string to_word(const StoreContact& contact);
// kProtocol if it is not such a word. The error has the reason, but not the word, because that contains the key.
Result<StoreContact> parse_store_contact(std::string_view word);

// Returns "10.0.0.7:4242" or "[fd00::7]:4242".
std::string with_port(const std::string& address, std::uint16_t port);

}  // namespace distrun::net
