#include "launcher/report/log_files.h"

#include <fcntl.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "runtime/base/system/folder.h"

namespace distrun::launcher {
namespace {

// O_APPEND: if another program truncates the file while distrun writes (logrotate's copytruncate), no hole of zeros
// remains.
Result<Fd> open_log(const Folder& folder, const std::string& name, const std::string& path) {
  Folder::Opened log = folder.open_to_write(name, O_APPEND);
  if (log.refused) {
    return Status(Errc::kSystem, "--output-dir: " + path +
                                     " is a link or no plain file, and others may write in this directory; remove it, "
                                     "or name a directory of your own");
  }
  if (!log.file.valid()) return errno_status("--output-dir: cannot write " + path, log.error);
  return std::move(log.file);
}

}  // namespace

Result<LogFiles> LogFiles::create(const std::string& directory, int ranks) {
  LogFiles out;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return errno_status("--output-dir: cannot make " + directory, error.value());
  const Folder folder(directory);
  if (!folder.valid()) return errno_status("--output-dir: cannot read " + directory, errno);
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const char* suffix : {".out", ".err"}) names.push_back("rank." + std::to_string(rank) + suffix);
  }
  names.emplace_back("merged.log");
  std::vector<Fd> files;
  for (const std::string& name : names) {
    auto file = open_log(folder, name, out.names_.emplace_back(directory + "/" + name));
    if (!file.ok()) return file.status();
    files.push_back(*std::move(file));
  }
  auto writer = FileWriter::create(std::move(files));
  if (!writer.ok()) return writer.status();
  out.writer_ = *std::move(writer);
  return out;
}

void LogFiles::begin() {
  begun_ = true;
  for (std::size_t file = 0; file < merged(); ++file) put({.file = file, .empty_first = true});
  put({.file = merged(), .text = std::exchange(held_, {}), .empty_first = true});
}

void LogFiles::write(int rank, int stream, std::string text) {
  put({.file = static_cast<std::size_t>(rank * 2 + stream), .text = std::move(text)});
}

void LogFiles::write_merged(std::string text) {
  if (begun_) return put({.file = merged(), .text = std::move(text)});
  held_ += text;
}

void LogFiles::put(FileWriter::Part part) {
  if (given_up()) return;
  waiting_bytes_ += FileWriter::size_of(part);
  waiting_.push_back(std::move(part));
}

void LogFiles::look() {
  if (!given_up()) writer_->look();
}

void LogFiles::finish() {
  if (!given_up() && waiting_.empty()) writer_->finish();
}

void LogFiles::watch(Poller& poller) {
  if (given_up()) return;
  if (!writer_->busy()) {
    writer_->write(std::exchange(waiting_, {}));
    waiting_bytes_ = 0;
  }
  writer_->watch(poller);
}

Status LogFiles::fault() const {
  if (given_up() || !writer_->fault()) return {};
  const FileWriter::Fault& fault = *writer_->fault();
  const std::string& name = names_[fault.file];
  if (fault.emptying)
    return errno_status("--output-dir: " + name + " cannot be emptied of an earlier run", fault.error);
  return errno_status("--output-dir: " + name + " cannot be written; what it does not take is missing there",
                      fault.error);
}

void LogFiles::give_up() {
  writer_.reset();
  waiting_.clear();
  waiting_bytes_ = 0;
}

}  // namespace distrun::launcher
