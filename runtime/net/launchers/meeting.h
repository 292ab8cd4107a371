// What rank 0 tells the others where no launcher of ours does: where the store is, the job's key and name. It travels
// through the spawner's own exchange, as one word. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"

namespace distrun::net {

struct Meeting {
  std::string job_id;
  JobKey key;
  std::vector<std::string> addresses;  // numeric, of rank 0's host, best first; at least one
  std::uint16_t port = 0;
};

inline constexpr std::size_t kMaxMeetingAddresses = 8;

// At most kMaxSharedText characters: what does not fit of the job's name is cut.
std::string to_word(const Meeting& meeting);
// kProtocol when it is not such a word, with the reason but without the word, which holds the key.
Result<Meeting> parse_meeting(std::string_view word);

// "10.0.0.7:4242", "[fd00::7]:4242".
std::string with_port(const std::string& address, std::uint16_t port);

}  // namespace distrun::net
