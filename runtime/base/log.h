// Writes the runtime's messages for the user. A line of up to 4 KiB is one write(2), so lines of ranks that share a
// terminal are not mixed. If the reader is too slow, for instance a pager, lines are dropped and counted: the writer
// may hold something that other threads or ranks wait for. Code that logs gets a Log as an argument; there is no global
// one. Safe from any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace distrun {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

class Log {
 public:
  using Sink = std::function<void(const std::string& line)>;

  // `level` is the setting log_level ("info"). `rank` -1 means no rank. Without a sink, lines go to standard error.
  explicit Log(std::string_view level, int rank = -1, Sink sink = {});

  [[nodiscard]] bool enabled(LogLevel level) const { return level >= level_; }
  void write(LogLevel level, std::string_view text) const;
  void trace(std::string_view text) const { write(LogLevel::kTrace, text); }
  void debug(std::string_view text) const { write(LogLevel::kDebug, text); }
  void info(std::string_view text) const { write(LogLevel::kInfo, text); }
  void warning(std::string_view text) const { write(LogLevel::kWarning, text); }
  void error(std::string_view text) const { write(LogLevel::kError, text); }

 private:
  LogLevel level_;
  std::string prefix_;  // "distrun: rank 3 "
  Sink sink_;
};

// Returns a sink that writes to `fd` and does not own it. A write waits up to 100 ms for room. After a dropped line it
// does not wait again until a write has succeeded.
Log::Sink lines_to(int fd);

}  // namespace distrun
