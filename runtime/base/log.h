// What the runtime says to people. A line of up to 4 KiB is one write(2), so lines of ranks that share a terminal stay
// whole. Where nobody reads, as of a pager, lines are left out and counted: who speaks may hold what others wait for.
// A Log is passed to whoever speaks; there is no global one. Safe from any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace distrun {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

class Log {
 public:
  using Sink = std::function<void(const std::string& line)>;

  // `level` is the setting log_level ("info"); `rank` -1 is no rank. Without a sink lines go to standard error.
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
  std::string prefix_;  // "distrun[3]"
  Sink sink_;
};

// Writes to a descriptor, which it does not own. Waits for room for 100 ms, and no more until there has been some.
Log::Sink lines_to(int fd);

}  // namespace distrun
