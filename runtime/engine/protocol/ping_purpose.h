// What a ping is for, and what a pong says: message::Ping::number and message::Pong::number.
#pragma once

#include <cstdint>

namespace distrun::engine {

inline constexpr std::uint64_t kPingAlive = 0;
inline constexpr std::uint64_t kPingClock = 1;
inline constexpr std::uint64_t kPingOverdue = 2;  // as kPingAlive; something that runs is past stall_shutdown_time
inline constexpr std::uint64_t kPingPatient = 3;  // the same, but it only waits
inline constexpr std::uint64_t kPongWarns = 4;    // the leader itself warns of what runs for too long

}  // namespace distrun::engine
