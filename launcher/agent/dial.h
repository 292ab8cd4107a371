// `distrun agent --connect HEAD:PORT --key-file FILE [--host NAME] [--timeout SECONDS]`: an agent that something else
// starts, and that finds its head by itself.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/environment.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::launcher {

// What both sides call the meeting before there is a job; the key tells jobs apart.
inline constexpr const char* kDialJob = "dial-in";
// In an agent's Hello, before the name of its host.
inline constexpr const char* kDialPurpose = "agent:";
inline constexpr std::size_t kLongestHost = 122;  // such a purpose has at most 128 bytes

// Tries each address in turn. An error tells what came of each.
Result<std::unique_ptr<net::SecureSocket>> dial_any(const std::vector<std::string>& addresses, const net::JobKey& key,
                                                    const net::Hello& hello, TimePoint deadline);

// Tells on standard error why this agent cannot take part; returns its exit code.
int unusable(const std::string& text);

// `arguments` are those behind "agent". Tries until the head is there or the time is over. Returns the exit code.
int dial_main(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace distrun::launcher
