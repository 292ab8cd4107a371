// `distrun agent --connect HEAD:PORT --key-file FILE [--host NAME] [--timeout SECONDS]`: an agent that the user or
// another system starts. It connects to its head by itself.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/environment.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::launcher {

// The job id in the Hello of both sides, because there is no job yet. The key distinguishes jobs.
inline constexpr const char* kDialJob = "dial-in";
// Prefix of the purpose in an agent's Hello; the name of its host follows.
inline constexpr const char* kDialPurpose = "agent:";
inline constexpr std::size_t kLongestHost = 122;  // a purpose has at most 128 bytes
// Why an agent cannot have this name of a host, or "".
std::string fault_of_host_name(const std::string& name);

// Tries each address in turn, for 5 s each at most. An error names all addresses and why each failed.
Result<std::unique_ptr<net::SecureSocket>> dial_any(const std::vector<std::string>& addresses, const net::JobKey& key,
                                                    const net::Hello& hello, TimePoint deadline);

// Prints to standard error why this agent cannot take part. Returns its exit code.
int unusable(const std::string& text);

// Reads the words after "agent" into `given`, which has the defaults.
Status read_dial_options(const std::vector<std::string>& arguments, std::map<std::string, std::string>& given);

// `arguments` are the words after "agent". Retries until the head answers or the timeout passes. Returns the exit code.
int dial_main(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace distrun::launcher
