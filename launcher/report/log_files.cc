#include "launcher/report/log_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

namespace distrun::launcher {
namespace {
Result<Fd> open_file(const std::string& path) {
  // O_APPEND: who cuts the file while we write (logrotate's copytruncate) gets no hole of zeros up to where we were.
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd.valid()) return errno_status("--output-dir: cannot write " + path, errno);
  return fd;
}
}  // namespace

Result<LogFiles> LogFiles::create(const std::string& directory, int ranks) {
  LogFiles out;
  out.directory_ = directory;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return errno_status("--output-dir: cannot make " + directory, error.value());
  for (int rank = 0; rank < ranks; ++rank) {
    for (const char* suffix : {".out", ".err"}) {
      auto file = open_file(directory + "/rank." + std::to_string(rank) + suffix);
      if (!file.ok()) return file.status();
      out.files_.push_back(*std::move(file));
    }
  }
  auto merged = open_file(directory + "/merged.log");
  if (!merged.ok()) return merged.status();
  out.merged_ = *std::move(merged);
  return out;
}

Status LogFiles::begin() {
  begun_ = true;
  for (const Fd& fd : files_) DISTRUN_RETURN_IF_ERROR(empty(fd));
  DISTRUN_RETURN_IF_ERROR(empty(merged_));
  return put(merged_, std::exchange(held_, {}));
}

Status LogFiles::empty(const Fd& fd) {
  // What cannot be cut (a pipe, a terminal) keeps nothing of an earlier run either.
  if (::ftruncate(fd.get(), 0) == 0 || errno == EINVAL) return {};
  failed_ = true;
  return errno_status("--output-dir: the logs of an earlier run in " + directory_ + " cannot be emptied", errno);
}

Status LogFiles::write(int rank, int stream, std::string_view bytes) {
  return put(files_.at(static_cast<std::size_t>(rank * 2 + stream)), bytes);
}

Status LogFiles::write_merged(std::string_view text) {
  if (begun_) return put(merged_, text);
  held_ += text;
  return {};
}

Status LogFiles::put(const Fd& fd, std::string_view bytes) {
  while (!bytes.empty() && !failed_) {
    const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      failed_ = true;
      return errno_status("--output-dir: " + directory_ + " takes no more, its logs are cut off here", errno);
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace distrun::launcher
