#include "launcher/job/input.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <tuple>
#include <utility>

#include "launcher/spawn/process.h"

namespace distrun::launcher {
namespace {

constexpr std::size_t kPiece = 32 * 1024;
// The ranks may be this far apart (--stdin all). Agents keep these bytes for the ranks that read slowly.
constexpr std::uint64_t kMostApart = 64 * 1024;

bool is_stream_socket() {
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(0, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

}  // namespace

void Input::open(const std::set<std::size_t>& hosts) {
  for (const std::size_t host : hosts) readers_[host] = 0;
  struct stat info {};
  if (readers_.empty() || ::fstat(0, &info) != 0) return;
  if (S_ISREG(info.st_mode) && ::lseek(0, 0, SEEK_CUR) >= 0) source_ = Source::kFile;
  if (S_ISSOCK(info.st_mode) && is_stream_socket()) source_ = Source::kSocket;
  if (S_ISFIFO(info.st_mode)) {
    if (auto copy = make_pipe(); copy.ok()) {
      std::tie(copy_out_, copy_in_) = *std::move(copy);
      source_ = Source::kPipe;
    }
  }
  if (::isatty(0) != 0) own_.reset(::open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
}

// Some rank has read all that was passed on, and no rank is too far behind.
bool Input::wanted() const {
  if (readers_.empty() || paused_ || ended_ || most_ < sent_) return false;
  return std::all_of(readers_.begin(), readers_.end(),
                     [this](const auto& reader) { return sent_ - reader.second <= kMostApart; });
}

void Input::watch(Poller& poller, const OnBytes& on_bytes) {
  if (wanted()) poller.watch(0, POLLIN, [this, on_bytes](short) { read(on_bytes); });
}

// Does not block: the input that the loop saw may have gone to another reader (`distrun ... | less`).
ssize_t Input::copy_some(std::vector<std::byte>& bytes) const {
  switch (source_) {
    case Source::kFile:
      return ::pread(0, bytes.data(), bytes.size(), ::lseek(0, 0, SEEK_CUR));
    case Source::kPipe:
      return copy_of_pipe(bytes);
    case Source::kSocket:
      return ::recv(0, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_PEEK);
    case Source::kStream:
      break;
  }
  return ::read(own_.valid() ? own_.get() : 0, bytes.data(), bytes.size());
}

ssize_t Input::copy_of_pipe(std::vector<std::byte>& bytes) const {
  const ssize_t copied = ::tee(0, copy_in_.get(), bytes.size(), SPLICE_F_NONBLOCK);
  for (ssize_t have = 0; have < copied;) {
    const ssize_t n = ::read(copy_out_.get(), bytes.data() + have, static_cast<std::size_t>(copied - have));
    if (n <= 0) return have;
    have += n;
  }
  return copied;
}

void Input::read(const OnBytes& on_bytes) {
  std::vector<std::byte> bytes(kPiece);
  const ssize_t n = copy_some(bytes);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  // With SIGTTIN ignored, the kernel returns EIO to a background process that reads its terminal.
  if (n < 0 && errno == EIO && ::isatty(0) != 0) {
    pause(Clock::now());
    return;
  }
  ended_ = n <= 0;
  bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  sent_ += bytes.size();
  std::set<std::size_t> hosts;
  for (const auto& [host, least] : readers_) hosts.insert(host);
  on_bytes(hosts, std::move(bytes));
}

void Input::taken(std::size_t host, const InputTaken& report) {
  const std::uint64_t most = std::min(report.most, sent_);
  if (most > most_) take(most - most_);
  most_ = std::max(most_, most);
  if (!report.more) {
    readers_.erase(host);
  } else if (const auto reader = readers_.find(host); reader != readers_.end()) {
    reader->second = std::min(report.least, sent_);
  }
}

// Does not block, also if another reader has taken these bytes first.
void Input::take(std::uint64_t bytes) const {
  if (source_ == Source::kFile) ::lseek(0, static_cast<off_t>(bytes), SEEK_CUR);
  if (source_ == Source::kPipe) take_from_pipe(bytes);
  if (source_ != Source::kSocket) return;
  std::vector<std::byte> dropped(kPiece);
  while (bytes > 0) {
    const ssize_t n = ::recv(0, dropped.data(), std::min<std::uint64_t>(bytes, dropped.size()), MSG_DONTWAIT);
    if (n <= 0) return;
    bytes -= static_cast<std::uint64_t>(n);
  }
}

void Input::take_from_pipe(std::uint64_t bytes) const {
  std::array<std::byte, kPiece> dropped{};
  while (bytes > 0) {
    const ssize_t moved = ::splice(0, nullptr, copy_in_.get(), nullptr, bytes, SPLICE_F_NONBLOCK);
    if (moved <= 0) return;
    for (ssize_t left = moved; left > 0;) {
      const ssize_t n =
          ::read(copy_out_.get(), dropped.data(), std::min(static_cast<std::size_t>(left), dropped.size()));
      if (n <= 0) return;
      left -= n;
    }
    bytes -= static_cast<std::uint64_t>(moved);
  }
}

std::optional<TimePoint> Input::deadline() const { return readers_.empty() ? std::nullopt : paused_; }

bool Input::look(TimePoint now) {
  if (!paused_ || now < *paused_) return false;
  const bool ours = ::tcgetpgrp(0) == ::getpgrp();
  if (ours) {
    resume();
  } else {
    pause(now);
  }
  return ours;
}

void Input::pause(TimePoint now) {
  paused_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
}

}  // namespace distrun::launcher
