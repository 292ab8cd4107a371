// What the runtime says to people. One line is one write(2), so lines of ranks that share a terminal stay whole.
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

}  // namespace distrun
