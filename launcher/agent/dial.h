// `distrun agent --connect HEAD:PORT --key-file FILE [--host NAME] [--timeout SECONDS]`: an agent that something else
// starts, and that finds its head by itself.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/settings.h"

namespace distrun::launcher {

// What both sides call the meeting before there is a job; the key tells jobs apart.
inline constexpr const char* kDialJob = "dial-in";
// In an agent's Hello, before the name of its host.
inline constexpr const char* kDialPurpose = "agent:";

// `arguments` are those behind "agent". Tries until the head is there or the time is over. Returns the exit code.
int dial_main(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace distrun::launcher
