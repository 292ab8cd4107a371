#include "runtime/base/log.h"

#include <unistd.h>

#include <array>
#include <utility>

namespace distrun {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"trace", "debug", "info", "warning", "error", "off"};

void write_to_standard_error(const std::string& line) {
  // Nobody can be told that standard error is closed.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

LogLevel level_of(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  }
  return LogLevel::kWarning;  // settings.cc has refused anything else before
}

}  // namespace

Log::Log(std::string_view level, int rank, Sink sink)
    : level_(level_of(level)),
      prefix_(rank < 0 ? "distrun" : "distrun[" + std::to_string(rank) + "]"),
      sink_(sink ? std::move(sink) : Sink(write_to_standard_error)) {}

void Log::write(LogLevel level, std::string_view text) const {
  if (!enabled(level) || level == LogLevel::kOff) return;
  std::string line = prefix_ + " " + std::string(kNames[static_cast<std::size_t>(level)]) + ": ";
  line += text;
  line += '\n';
  sink_(line);
}

}  // namespace distrun
