// The purpose of a ping and the result in a pong: values of message::Ping::number and message::Pong::number.
#pragma once

#include <cstdint>

namespace distrun::engine {

inline constexpr std::uint64_t kPingAlive = 0;
inline constexpr std::uint64_t kPingClock = 1;
inline constexpr std::uint64_t kPingOverdue = 2;    // as kPingAlive; a running operation is past stall_shutdown_time
inline constexpr std::uint64_t kPingWaitsOnly = 3;  // as kPingOverdue, but the operation is only waiting
inline constexpr std::uint64_t kPongWarns = 4;      // the leader itself warns of an operation that runs too long

}  // namespace distrun::engine
