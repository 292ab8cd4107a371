#include "runtime/base/status.h"

#include <sys/resource.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace distrun {

const ErrorInfo& Status::info() const {
  DISTRUN_CHECK(info_ != nullptr, "an ok Status has no error information");
  return *info_;
}

Status Status::with_context(const std::string& context) const {
  ErrorInfo copy = info();
  copy.message = context + ": " + copy.message;
  return Status(std::move(copy));
}

namespace {

// The limit that is reached, and how to raise it. Empty for errors that show no limit.
std::string limit_behind(int error_number) {
  rlimit limit{};
  if (error_number == ENFILE) return "; the machine's limit is reached: raise `sysctl fs.file-max`";
  if (error_number != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  const bool hard = limit.rlim_cur == limit.rlim_max;
  return "; this process may have " + std::to_string(limit.rlim_cur) + ": raise `ulimit " + (hard ? "-Hn" : "-n") + "`";
}

}  // namespace

Status errno_status(const std::string& what, int error_number) {
  return {Errc::kSystem, what + ": " + std::generic_category().message(error_number) + " (errno " +
                             std::to_string(error_number) + ")" + limit_behind(error_number)};
}

void check_failed(const char* expression, const std::string& text, SourceLocation where) {
  throw std::logic_error(std::string(where.file) + ":" + std::to_string(where.line) + ": " + expression + ": " + text);
}

}  // namespace distrun
