// What must be true on a host before any rank starts there, and the ports that are kept free for ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/protocol/messages.h"
#include "runtime/base/fd.h"

namespace distrun::launcher {

// The program as a path, or why the job cannot start (126 not executable, 127 missing, 69 directory gone).
struct Program {
  std::string path;
  std::optional<Refused> refused;
};
Program find_program(const JobCommon& common, const std::string& host);
// The same of JobCommon::server.
Program find_server(const JobCommon& common, const std::string& host);

// Gives the ranks what this host's own environment says of it; where that says nothing, they have what the head has
// left them. A folder that another host has named counts if it is here too. Returns where it is not, for people.
std::vector<std::string> take_host_own(JobCommon& common, const Environment& own);

// Free ports of this host, each held by a socket that is bound but never listens. With SO_REUSEADDR on both sides a
// rank can still listen there, while nobody gets the port by chance.
class HeldPorts {
 public:
  static Result<HeldPorts> hold(int count);
  [[nodiscard]] const std::vector<std::uint16_t>& numbers() const { return numbers_; }

 private:
  std::vector<Fd> sockets_;
  std::vector<std::uint16_t> numbers_;
};

}  // namespace distrun::launcher
