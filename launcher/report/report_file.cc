#include "launcher/report/report_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
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
    case CauseKind::kDeadlock:
      return "deadlock";
    case CauseKind::kLeftEarly:
      return "left_early";
    case CauseKind::kHostLost:
      return "host_lost";
    case CauseKind::kCarrierLost:
      return "carrier_lost";
    case CauseKind::kOwnNetwork:
      return "own_network";
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
    case CauseKind::kNetworkBroken:
      return "network_broken";
    case CauseKind::kLinkEnded:
      return "link_ended";
    case CauseKind::kBadRecord:
      return "bad_record";
    case CauseKind::kOutputLost:
      break;
  }
  return "output_lost";
}

// Ranks may write any bytes.
std::string json_text(std::string_view text) { return json_quote(valid_utf8(text)); }
std::string text_or_null(const std::string& text) { return text.empty() ? "null" : json_text(text); }
std::string json_bool(bool value) { return value ? "true" : "false"; }

template <class Item, class ToJson>
std::string list_json(const std::vector<Item>& items, ToJson to_json) {
  std::vector<std::string> out;
  for (const Item& item : items) out.push_back(to_json(item));
  return "[" + join(out, ", ") + "]";
}

std::string_view end_name(LinkEnd end) {
  switch (end) {
    case LinkEnd::kClosed:
      return "closed";
    case LinkEnd::kReset:
      return "reset";
    case LinkEnd::kSilent:
      return "silent";
    case LinkEnd::kLargeSilent:
      return "large_silent";
    case LinkEnd::kTampered:
      return "tampered";
    case LinkEnd::kMalformed:
      return "malformed";
    case LinkEnd::kUnfinished:
      return "unfinished";
    case LinkEnd::kUnknown:
      break;
  }
  return "unknown";
}

std::string end_json(const BrokenLink::End& end) {
  return "{\"rank\": " + (end.rank < 0 ? "null" : std::to_string(end.rank)) + ", \"host\": " + text_or_null(end.host) +
         ", \"address\": " + text_or_null(end.address) + "}";
}

std::string link_json(const std::optional<BrokenLink>& link) {
  if (!link) return "null";
  return "{\"end\": " + json_text(end_name(link->end)) + ", \"from\": " + end_json(link->from) +
         ", \"to\": " + end_json(link->to) +
         ", \"silent_seconds\": " + (link->silent > 0 ? seconds_text(link->silent) : "null") +
         ", \"host\": " + text_or_null(link->host) + ", \"others\": " + list_json(link->others, json_text) +
         ", \"why\": " + text_or_null(link->why) + "}";
}

std::string cause_json(const Cause& cause) {
  const bool exited = cause.kind == CauseKind::kExited;
  const bool by_signal = cause.signal != 0;
  return "{\"kind\": " + json_text(kind_name(cause.kind)) + ", \"text\": " + json_text(text_of(cause)) +
         ", \"exit_code\": " + (exited ? std::to_string(cause.exit_code) : "null") +
         ", \"signal\": " + (by_signal ? std::to_string(cause.signal) : "null") +
         ", \"signal_name\": " + (by_signal ? json_text(signal_name(cause.signal)) : "null") +
         ", \"out_of_memory\": " + json_bool(cause.out_of_memory) + ", \"by_other\": " + json_bool(cause.by_other) +
         ", \"exception\": " + text_or_null(cause.exception) +
         ", \"process_state\": " + (cause.state == '\0' ? "null" : json_text(std::string_view(&cause.state, 1))) +
         ", \"link\": " + link_json(cause.link) + "}";
}

std::string follower_json(const Follower& follower) {
  return "{\"rank\": " + std::to_string(follower.rank) + ", \"cause\": " + cause_json(follower.cause) +
         ", \"last_line\": " + text_or_null(follower.last_line) +
         ", \"ended_by_distrun\": " + json_bool(follower.ended_by_us) + "}";
}

std::string place_json(const net::CodePlace& place) {
  if (place.file.empty()) return "null";
  return "{\"file\": " + json_text(place.file) + ", \"line\": " + std::to_string(place.line) + "}";
}

std::string ranks_json(const std::vector<int>& ranks) {
  std::vector<std::string> out;
  for (const int rank : ranks) out.push_back(std::to_string(rank));
  return "[" + join(out, ", ") + "]";
}

std::string wait_json(const net::RankWait& wait) {
  return "{\"what\": " + json_text(wait.what) + ", \"waiting\": " + ranks_json(wait.waiting) +
         ", \"missing\": " + ranks_json(wait.missing) + "}";
}

std::string thread_json(const net::ThreadStack& thread) {
  const auto frame_json = [](const net::CodeFrame& frame) {
    return "{\"file\": " + json_text(frame.place.file) + ", \"line\": " + std::to_string(frame.place.line) +
           ", \"function\": " + json_text(frame.function) + "}";
  };
  return "{\"name\": " + text_or_null(thread.name) + ", \"frames\": " + list_json(thread.frames, frame_json) + "}";
}

// Ranks at the same place share one object.
std::string stack_json(const ViewGroup& group) {
  const net::ProgramState state = group.view.state.value_or(net::ProgramState{});
  return "{\"ranks\": " + ranks_json(group.ranks) + ", \"missed\": " + json_bool(group.view.missed) +
         ", \"operation\": " + text_or_null(state.operation) + ", \"exception\": " + text_or_null(state.exception) +
         ", \"raised_at\": " + place_json(state.raised_at) + ", \"kernel\": " + text_or_null(state.kernel) +
         ", \"threads\": " + list_json(state.threads, thread_json) + ", \"note\": " + text_or_null(group.view.note) +
         "}";
}

Status errno_of(const std::string& what) { return {Errc::kSystem, what + ": " + std::strerror(errno)}; }

// Follows links, so that the link itself stays a link.
std::string file_behind(const std::string& path) {
  constexpr int kMostLinks = 40;
  std::filesystem::path file = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(file, error); ++i) {
    file = file.parent_path() / std::filesystem::read_symlink(file, error);
  }
  return file.string();
}

std::string name_beside(const std::string& file) { return file + "." + std::to_string(::getpid()) + ".new"; }

Fd open_new(const std::string& file) {
  return Fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
}

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
         ", \"cause\": " + (failure ? cause_json(report.cause) : "null") + ", \"rank\": " +
         (report.rank < 0 || report.cause.kind == CauseKind::kDeadlock ? "null" : std::to_string(report.rank)) +
         ", \"host\": " + text_or_null(report.cause.kind == CauseKind::kDeadlock ? "" : report.host) +
         ", \"hosts\": " + list_json(report.hosts, json_text) +
         ", \"pid\": " + (report.pid > 0 ? std::to_string(report.pid) : "null") +
         ", \"tensor\": " + text_or_null(report.tensor) + ", \"place\": " + place_json(report.place) +
         ", \"cure\": " + (failure ? text_or_null(cure_of(report)) : "null") +
         ", \"last_lines\": " + list_json(report.last_lines, json_text) +
         ", \"followers\": " + list_json(report.followers, follower_json) +
         ", \"waits\": " + list_json(report.hang.waits, wait_json) +
         ", \"stacks\": " + list_json(fold(report.hang.views), stack_json) + "}\n";
}

Status check_report_path(const std::string& path) {
  const auto refuse = [&path](const std::string& why) {
    return Status(Errc::kInvalidArgument, "--report " + path + ": " + why);
  };
  struct stat info {};
  const std::string file = file_behind(path);
  const bool exists = ::stat(file.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return refuse("it is a folder; name a file in it");
  if (exists && !S_ISREG(info.st_mode)) return refuse("it is a device, a pipe or a socket; name a file");
  const std::string beside = name_beside(file);
  if (!open_new(beside).valid()) {
    const std::string folder = std::filesystem::path(file).parent_path().string();
    return refuse("no file can be made in " + (folder.empty() ? "this folder" : folder) + ": " + std::strerror(errno));
  }
  ::unlink(beside.c_str());
  return {};
}

void remove_report(const std::string& path) { ::unlink(file_behind(path).c_str()); }

Status write_report(const std::string& path, const std::string& text) {
  const std::string file = file_behind(path);
  const std::string beside = name_beside(file);
  const Fd fd = open_new(beside);
  if (!fd.valid()) return errno_of(beside);
  Status status = write_all(fd, text, beside);
  if (status.ok() && std::rename(beside.c_str(), file.c_str()) != 0) status = errno_of(file);
  if (!status.ok()) ::unlink(beside.c_str());
  return status;
}

}  // namespace distrun::launcher
