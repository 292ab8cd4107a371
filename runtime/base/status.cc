#include "runtime/base/status.h"

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

Status errno_status(const std::string& what, int error_number) {
  return {Errc::kSystem, what + ": " + std::generic_category().message(error_number) + " (errno " +
                             std::to_string(error_number) + ")"};
}

void check_failed(const char* expression, const std::string& text, SourceLocation where) {
  throw std::logic_error(std::string(where.file) + ":" + std::to_string(where.line) + ": " + expression + ": " + text);
}

}  // namespace distrun
