#include "launcher/report/report_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "launcher/plan/hosts/text.h"
#include "runtime/base/fd.h"

namespace distrun::launcher {
namespace {

std::string_view kind_name(CauseKind kind) {
  switch (kind) {
    case CauseKind::kExited:
      return "exited";
    case CauseKind::kKilled:
      return "killed";
    case CauseKind::kRaised:
      return "raised";
    case CauseKind::kStalled:
      return "stalled";
    case CauseKind::kLeftEarly:
      return "left_early";
    case CauseKind::kHostLost:
      return "host_lost";
    case CauseKind::kNotStarted:
      return "not_started";
    case CauseKind::kBrokenOff:
      return "broken_off";
    case CauseKind::kInterrupted:
      return "interrupted";
    case CauseKind::kTimedOut:
      return "timed_out";
    case CauseKind::kReaderGone:
      return "reader_gone";
    case CauseKind::kOutputLost:
      break;
  }
  return "output_lost";
}

std::string text_or_null(const std::string& text) { return text.empty() ? "null" : json_quote(text); }
std::string truth(bool value) { return value ? "true" : "false"; }

std::string cause_json(const Cause& cause) {
  const bool exited = cause.kind == CauseKind::kExited;
  const bool by_signal = cause.signal != 0;
  return "{\"kind\": " + json_quote(kind_name(cause.kind)) + ", \"text\": " + json_quote(text_of(cause)) +
         ", \"exit_code\": " + (exited ? std::to_string(cause.exit_code) : "null") +
         ", \"signal\": " + (by_signal ? std::to_string(cause.signal) : "null") +
         ", \"signal_name\": " + (by_signal ? json_quote(signal_name(cause.signal)) : "null") +
         ", \"out_of_memory\": " + truth(cause.out_of_memory) + ", \"by_other\": " + truth(cause.by_other) + "}";
}

std::string follower_json(const Follower& follower) {
  return "{\"rank\": " + std::to_string(follower.rank) + ", \"cause\": " + cause_json(follower.cause) +
         ", \"last_line\": " + text_or_null(follower.last_line) +
         ", \"ended_by_distrun\": " + truth(follower.ended_by_us) + "}";
}

std::string place_json(const net::CodePlace& place) {
  if (place.file.empty()) return "null";
  return "{\"file\": " + json_quote(place.file) + ", \"line\": " + std::to_string(place.line) + "}";
}

template <class Item, class ToJson>
std::string list_json(const std::vector<Item>& items, ToJson to_json) {
  std::vector<std::string> out;
  for (const Item& item : items) out.push_back(to_json(item));
  return "[" + join(out, ", ") + "]";
}

Status errno_of(const std::string& what) { return {Errc::kSystem, what + ": " + std::strerror(errno)}; }

Status write_all(const Fd& fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return errno_of(path);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return ::fsync(fd.get()) == 0 || errno == EINVAL ? Status() : errno_of(path);
}

}  // namespace

std::string report_json(const std::optional<FailureReport>& failure, int exit_code) {
  const FailureReport report = failure.value_or(FailureReport{});
  return "{\"format\": " + std::to_string(kReportFormat) + ", \"exit_code\": " + std::to_string(exit_code) +
         ", \"cause\": " + (failure ? cause_json(report.cause) : "null") +
         ", \"rank\": " + (report.rank < 0 ? "null" : std::to_string(report.rank)) +
         ", \"host\": " + text_or_null(report.host) +
         ", \"pid\": " + (report.pid > 0 ? std::to_string(report.pid) : "null") +
         ", \"tensor\": " + text_or_null(report.tensor) + ", \"place\": " + place_json(report.place) +
         ", \"cure\": " + (failure ? text_or_null(cure_of(report.cause)) : "null") +
         ", \"last_lines\": " + list_json(report.last_lines, [](const std::string& line) { return json_quote(line); }) +
         ", \"followers\": " + list_json(report.followers, follower_json) + "}\n";
}

Status check_report_path(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return {Errc::kInvalidArgument, "--report " + path + " is a folder; name a file in it"};
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) return {};
  if (::stat(folder.c_str(), &info) != 0) {
    return {Errc::kInvalidArgument, "--report " + path + ": " + folder + ": " + std::strerror(errno)};
  }
  if (S_ISDIR(info.st_mode)) return {};
  return {Errc::kInvalidArgument, "--report " + path + ": " + folder + " is not a folder"};
}

Status write_report(const std::string& path, const std::string& text) {
  const std::string beside = path + "." + std::to_string(::getpid()) + ".new";
  const Fd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd.valid()) return errno_of(beside);
  Status status = write_all(fd, text, beside);
  if (status.ok() && std::rename(beside.c_str(), path.c_str()) != 0) status = errno_of(path);
  if (!status.ok()) ::unlink(beside.c_str());
  return status;
}

}  // namespace distrun::launcher
