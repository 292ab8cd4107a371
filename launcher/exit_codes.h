// The exit codes of distrun itself. Every other code is that of the first rank that failed.
// docs/reference/exit-codes.md explains each.
#pragma once

namespace distrun::launcher::exit_code {

inline constexpr int kUsage = 64;
inline constexpr int kUnusable = 69;  // a host, slot or agent, before ranks start
inline constexpr int kInternal = 70;
inline constexpr int kOutputLost = 74;  // output was lost, but the job itself succeeded
inline constexpr int kHostLost = 75;
inline constexpr int kRankLeft = 76;
inline constexpr int kTimeout = 124;
inline constexpr int kNotExecutable = 126;
inline constexpr int kMissing = 127;
inline constexpr int kSignalBase = 128;
inline constexpr int kReaderGone = kSignalBase + 13;  // the code of a program that SIGPIPE ends

}  // namespace distrun::launcher::exit_code
