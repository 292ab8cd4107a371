#include "launcher/report/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace distrun::launcher {
namespace {

// The parts are small so that progress of a slow reader is visible.
std::vector<FileWriter::Part> parts_of(const std::string& text) {
  constexpr std::size_t kPart = 4096;
  std::vector<FileWriter::Part> out;
  for (std::size_t at = 0; at < text.size(); at += kPart) out.push_back({.text = text.substr(at, kPart)});
  return out;
}

}  // namespace

Terminal::Terminal(int fd) : fd_(fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    closed_ = true;
    return;
  }
  tty_ = ::isatty(fd) != 0;
  if (S_ISSOCK(info.st_mode)) {
    kind_ = Kind::kSocket;
  } else if (S_ISFIFO(info.st_mode) || tty_) {
    own_.reset(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    kind_ = own_.valid() ? Kind::kNonBlocking : Kind::kShared;
    if (own_.valid()) fd_ = own_.get();
  }
}

Status Terminal::open() {
  if (closed_ || (kind_ != Kind::kFile && kind_ != Kind::kShared)) return {};
  std::vector<Fd> files;
  files.emplace_back(::fcntl(fd_, F_DUPFD_CLOEXEC, 3));
  if (!files.front().valid()) return errno_status("duplicate a descriptor", errno);
  auto writer = FileWriter::create(std::move(files));
  if (!writer.ok()) return writer.status();
  writer_ = *std::move(writer);
  return {};
}

std::size_t Terminal::height() const {
  winsize size{};
  return tty_ && ::ioctl(fd_, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

bool Terminal::same_as(const Terminal& other) const {
  struct stat a {};
  struct stat b {};
  if (::fstat(fd_, &a) != 0 || ::fstat(other.fd_, &b) != 0) return false;
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void Terminal::look() {
  if (!writer_) return;
  writer_->look();
  if (kind_ != Kind::kShared || !writer_->fault() || !means_gone(writer_->fault()->error)) return;
  closed_ = true;
  writer_.reset();
}

// A terminal that has hung up returns EIO. On other outputs EIO is a disk fault.
bool Terminal::means_gone(int error) const {
  return error == EPIPE || error == ECONNRESET || error == EBADF || (tty_ && error == EIO);
}

void Terminal::watch(Poller& poller, std::string& text) {
  // Text without a reader must not pile up. A full backlog stops the reading from agents, and the job could not end.
  if (closed_) text.clear();
  if (writer_) {
    if (!writer_->busy() && !text.empty()) writer_->write(parts_of(std::exchange(text, {})));
    return writer_->watch(poller);
  }
  if (text.empty()) return;
  poller.watch(fd_, POLLOUT, [this, &text](short) { flush(text); });
}

void Terminal::flush(std::string& text) {
  std::size_t at = 0;
  while (at < text.size() && !closed_) {
    const std::size_t size = text.size() - at;
    const ssize_t n = kind_ == Kind::kSocket ? ::send(fd_, text.data() + at, size, MSG_DONTWAIT | MSG_NOSIGNAL)
                                             : ::write(fd_, text.data() + at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {
      // A full disk does not end the job. The caller decides what a reader that has gone means.
      closed_ = means_gone(errno);
      if (!closed_) lost_ = errno;
      at = text.size();
      break;
    }
    at += static_cast<std::size_t>(n);
  }
  if (closed_) at = text.size();
  taken_ += at;
  text.erase(0, at);
}

void Terminal::give_up() {
  closed_ = given_up_ = true;
  writer_.reset();
}

}  // namespace distrun::launcher
