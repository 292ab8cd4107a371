// Checks that must succeed on a host before any rank starts there, and the ports that are reserved for ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/protocol/messages.h"
#include "runtime/base/fd.h"

namespace distrun::launcher {

// The program as a path, or why the job cannot start (126 not executable, 127 missing, 69 directory missing).
struct Program {
  std::string path;
  std::optional<Refused> refused;
};
Program find_program(const JobCommon& common, const std::string& host);
// The same for JobCommon::server.
Program find_server(const JobCommon& common, const std::string& host);

// Sets the variables in JobCommon::host_own to the values of this host's own environment. A variable that is not set
// here keeps the value from the head. If the variable names a folder, the head's folder is kept if it exists here too.
// Returns one line for the user for each folder that does not.
std::vector<std::string> take_host_own(JobCommon& common, const Environment& own);

// The addresses that names have on this host. May block for seconds, if a name server does not answer.
Resolved resolved(const Resolve& question);

// Free ports of this host. A socket that is bound but never listens holds each port. With SO_REUSEADDR on both sides a
// rank can still listen there, but no other process gets the port by chance.
class HeldPorts {
 public:
  static Result<HeldPorts> hold(int count);
  [[nodiscard]] const std::vector<std::uint16_t>& numbers() const { return numbers_; }

 private:
  std::vector<Fd> sockets_;
  std::vector<std::uint16_t> numbers_;
};

}  // namespace distrun::launcher
