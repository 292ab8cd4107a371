// Expected outcomes are values. A Status is ok or carries one ErrorInfo; a Result<T> is a value or such a Status.
// Broken contracts (programmer errors) are DISTRUN_CHECK, which throws std::logic_error.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/link_end.h"

namespace distrun {

// The numeric values are part of the C API (distrun_code): append, never renumber.
enum class Errc : int {
  kOk = 0,
  kInvalidArgument =
      1,  // the request is wrong by itself; refused on this rank, or on every rank if only the coordinator can see it
  kDuplicateName = 2,   // a tensor of this name is still in flight on this rank
  kMismatch = 3,        // ranks disagree on dtype, shape, op, scale, root, group or device; delivered to every rank
  kRankLost = 4,        // a rank died or its host is unreachable; ends the job
  kRankLeft = 5,        // a rank left while others still wait for it; ends the job
  kTimeout = 6,         // a deadline passed
  kNotInitialized = 7,  // no session, shut down, or used in a forked child
  kUnsupported = 8,     // no backend can do this; the text says why
  kProtocol = 9,        // authentication, version or framing error
  kSystem = 10,         // the operating system refused; the text has errno
  kInterrupted = 11,    // a signal arrived during a blocking wait; call wait again
  kAborted = 12,        // the job was aborted; `cause` says why
  kShutDown = 13,       // submitted after shutdown began
  kOutOfMemory = 14,
  kInternal = 15,  // a bug in distrun
};

struct ErrorInfo {
  Errc code = Errc::kInternal;
  std::string message;               // a whole sentence: what happened, where, and what to do
  std::string tensor;                // the tensor concerned, or empty
  std::vector<int> ranks;            // the differing, missing or dead ranks (world ranks)
  std::string host;                  // the host concerned, or empty
  std::string cause;                 // the first cause in a few words ("killed by signal 9 (SIGKILL)")
  bool usable = true;                // false: the job cannot continue after this error
  LinkEnd link = LinkEnd::kUnknown;  // how the connection ended, if the error is the end of a connection
  // This rank cannot read or write the memory of a tensor. No peer is at fault. The flag stays on this rank.
  bool own_memory = false;
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(Errc code, std::string message)
      : info_(std::make_shared<const ErrorInfo>(ErrorInfo{.code = code, .message = std::move(message)})) {}
  explicit Status(ErrorInfo info) : info_(std::make_shared<const ErrorInfo>(std::move(info))) {}

  [[nodiscard]] bool ok() const { return info_ == nullptr; }
  [[nodiscard]] Errc code() const { return info_ ? info_->code : Errc::kOk; }
  [[nodiscard]] const ErrorInfo& info() const;  // DISTRUN_CHECKs that the status is an error
  [[nodiscard]] const std::string& message() const { return info().message; }
  // Returns the same error with "context: " before the message.
  [[nodiscard]] Status with_context(const std::string& context) const;

 private:
  std::shared_ptr<const ErrorInfo> info_;  // never modified, so copies on several threads are safe
};

Status errno_status(const std::string& what, int error_number);  // kSystem: "what: text (errno n)"

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Result(Status error) : status_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// A replacement for std::source_location, which clang 14 lacks with the library of g++ 12.
struct SourceLocation {
  const char* file;
  int line;
  static SourceLocation current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {.file = file, .line = line};
  }
};

[[noreturn]] void check_failed(const char* expression, const std::string& text, SourceLocation where);

}  // namespace distrun

// For contracts between the parts of distrun. Never use it to check user input.
#define DISTRUN_CHECK(expression, text)                                                                    \
  do {                                                                                                     \
    if (!(expression)) ::distrun::check_failed(#expression, (text), ::distrun::SourceLocation::current()); \
  } while (false)

#define DISTRUN_RETURN_IF_ERROR(expression)                                      \
  do {                                                                           \
    if (::distrun::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
