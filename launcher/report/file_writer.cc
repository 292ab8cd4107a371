#include "launcher/report/file_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <string_view>

#include "runtime/base/annotations.h"
#include "runtime/base/thread.h"

namespace distrun::launcher {
namespace {

// Size of one write. It is small so that progress of a slow disk is visible.
constexpr std::size_t kAtOnce = 64 * 1024;

}  // namespace

struct FileWriter::State {
  struct File {
    Fd fd;
    bool in_line = false;     // the last text does not end a line
    std::size_t dropped = 0;  // bytes that the line in the file will report as missing
    int error = 0;
    TimePoint again{};  // time of the next try
  };

  std::vector<File> files;  // used by the thread only
  Duration retry;           // constant
  Flush flush;              // constant
  Fd wake;                  // constant; readable when a batch has been written
  Mutex mutex;
  std::condition_variable_any changed;
  std::vector<Part> batch DISTRUN_GUARDED_BY(mutex);
  bool given DISTRUN_GUARDED_BY(mutex) = false;  // the thread has a batch, or will take one
  bool ending DISTRUN_GUARDED_BY(mutex) = false;
  std::size_t taken DISTRUN_GUARDED_BY(mutex) = 0;
  std::optional<Fault> fault DISTRUN_GUARDED_BY(mutex);

  static std::string mark_of(const File& file);
  std::vector<Part> wait_and_take();
  void put(const Part& part);
  void empty(std::size_t number);
  std::string_view write_some(std::size_t number, std::string_view text);
  void failed(const Fault& why);
  void took(std::size_t bytes);
  void done();
};

std::string FileWriter::State::mark_of(const File& file) {
  const std::string why = errno_status("", file.error).message().substr(2);
  return (file.in_line ? "\n" : "") + std::string("distrun: ") + std::to_string(file.dropped) +
         " bytes are missing here: " + why + "\n";
}

// Returns an empty batch if no more will come.
std::vector<FileWriter::Part> FileWriter::State::wait_and_take() {
  const MutexLock lock(mutex);
  // condition_variable::wait needs GLIBCXX_3.4.30, which is newer than the wheel may require.
  while (batch.empty() && !ending) changed.wait_until(mutex, TimePoint::max());
  return std::exchange(batch, {});
}

void FileWriter::State::put(const Part& part) {
  File& file = files.at(part.file);
  if (part.empty_first) empty(part.file);
  std::string_view left = part.text;
  if (file.dropped == 0) {
    left = write_some(part.file, left);
  } else if ((part.last || Clock::now() >= file.again) && write_some(part.file, mark_of(file)).empty()) {
    file.dropped = 0;
    left = write_some(part.file, left);
  }
  file.dropped += left.size();
  took(left.size());
  if (part.last && flush(file.fd.get()) != 0) failed({.file = part.file, .error = errno});
}

void FileWriter::State::empty(std::size_t number) {
  // A pipe or terminal cannot be truncated, but it also keeps nothing of an earlier run.
  if (::ftruncate(files[number].fd.get(), 0) != 0 && errno != EINVAL) {
    failed({.file = number, .error = errno, .emptying = true});
  }
  took(1);
}

// Returns the text that the file has not taken.
std::string_view FileWriter::State::write_some(std::size_t number, std::string_view text) {
  File& file = files[number];
  while (!text.empty()) {
    const ssize_t n = ::write(file.fd.get(), text.data(), std::min(text.size(), kAtOnce));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {  // a pipe or terminal that another process made non-blocking
      pollfd room{.fd = file.fd.get(), .events = POLLOUT, .revents = 0};
      ::poll(&room, 1, -1);
      continue;
    }
    if (n < 0) {
      file.error = errno;
      file.again = Clock::now() + retry;
      failed({.file = number, .error = file.error});
      break;
    }
    took(static_cast<std::size_t>(n));
    file.in_line = n > 0 ? text[static_cast<std::size_t>(n) - 1] != '\n' : file.in_line;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return text;
}

void FileWriter::State::failed(const Fault& why) {
  const MutexLock lock(mutex);
  if (!fault) fault = why;
}

void FileWriter::State::took(std::size_t bytes) {
  const MutexLock lock(mutex);
  taken += bytes;
}

void FileWriter::State::done() {
  {
    const MutexLock lock(mutex);
    given = false;
  }
  const std::uint64_t one = 1;
  // Cannot fail: the counter of an eventfd never gets full here.
  [[maybe_unused]] const ssize_t n = ::write(wake.get(), &one, sizeof one);
}

void FileWriter::run(State& state) {
  for (auto batch = state.wait_and_take(); !batch.empty(); batch = state.wait_and_take()) {
    for (const Part& part : batch) state.put(part);
    state.done();
  }
}

// Closing any descriptor of the file reports such errors. The file's own descriptor stays open, since a message about a
// fault may still be written there.
int FileWriter::flush(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  return copy < 0 ? 0 : ::close(copy);
}

Result<std::unique_ptr<FileWriter>> FileWriter::create(std::vector<Fd> files, Duration retry, Flush flush) {
  auto state = std::make_shared<State>();
  for (Fd& fd : files) state->files.push_back({.fd = std::move(fd)});
  state->retry = retry;
  state->flush = flush;
  state->wake.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state->wake.valid()) return errno_status("eventfd", errno);
  std::unique_ptr<FileWriter> writer(new FileWriter(state));  // the constructor is private
  writer->files_ = state->files.size();
  auto thread = named_thread("distrun-files", [state] { run(*state); });
  if (!thread.ok()) return thread.status();
  writer->thread_ = *std::move(thread);
  return writer;
}

FileWriter::~FileWriter() {
  if (!thread_.joinable()) return;
  bool in_disk = false;
  {
    const MutexLock lock(state_->mutex);
    state_->ending = true;
    in_disk = state_->given;
    state_->changed.notify_all();
  }
  in_disk ? thread_.detach() : thread_.join();
}

void FileWriter::look() {
  std::uint64_t batches = 0;
  // Read before the state: a batch that ends later wakes the loop again. The read may find nothing.
  [[maybe_unused]] const ssize_t n = ::read(state_->wake.get(), &batches, sizeof batches);
  const MutexLock lock(state_->mutex);
  fault_ = state_->fault;
  busy_ = state_->given;
  if (!busy_) in_hand_ = 0;
}

void FileWriter::write(std::vector<Part> batch) {
  if (batch.empty()) return;
  for (const Part& part : batch) in_hand_ += size_of(part);
  busy_ = true;
  const MutexLock lock(state_->mutex);
  state_->batch = std::move(batch);
  state_->given = true;
  state_->changed.notify_all();
}

void FileWriter::finish() {
  if (busy_ || std::exchange(finished_, true)) return;
  std::vector<Part> batch;
  for (std::size_t file = 0; file < files_; ++file) batch.push_back({.file = file, .last = true});
  write(std::move(batch));
}

void FileWriter::watch(Poller& poller) {
  if (busy_) poller.watch(state_->wake.get(), POLLIN, [this](short) { look(); });
}

std::size_t FileWriter::taken() const {
  const MutexLock lock(state_->mutex);
  return state_->taken;
}

}  // namespace distrun::launcher
