#include "launcher/spawn/frames.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/net/bytes/socket.h"

namespace distrun::launcher {
namespace {
constexpr std::size_t kHeader = 5;

std::uint32_t read_length(const std::byte* at) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | std::to_integer<std::uint32_t>(at[i]);
  return value;
}

void set_nonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }
}  // namespace

FramePipe::FramePipe(Fd in, Fd out) : in_(std::move(in)), out_(std::move(out)) {
  set_nonblocking(in_.get());
  set_nonblocking(out_.get());
}

// The other side may be stopped for any length of time. The signs of life show whether it is still alive.
FramePipe::FramePipe(std::unique_ptr<net::SecureSocket> connection) : connection_(std::move(connection)) {
  net::allow_slow_reader(connection_->fd());
}

void FramePipe::outlast(double seconds) {
  if (connection_) net::set_host_timeout(connection_->fd(), 2 * seconds);
}

void FramePipe::lose(Status why) {
  closed_ = true;
  connection_.reset();
  if (fault_.ok()) fault_ = std::move(why);
  queue_.clear();
}

void FramePipe::greet(std::string_view greeting) {
  const auto* bytes = reinterpret_cast<const std::byte*>(greeting.data());
  queue_.emplace_back(bytes, bytes + greeting.size());
  flush();
}

bool FramePipe::take_greeting() {
  if (awaited_.empty()) return true;
  const auto* wanted = reinterpret_cast<const std::byte*>(awaited_.data());
  const auto at = std::search(input_.begin(), input_.end(), wanted, wanted + awaited_.size());
  noise_.assign(reinterpret_cast<const char*>(input_.data()), static_cast<std::size_t>(at - input_.begin()));
  if (noise_.size() > kMaxNoise) lose({Errc::kProtocol, std::string(kMuchNoise)});
  if (closed_ || at == input_.end()) return false;
  input_.erase(input_.begin(), at + static_cast<std::ptrdiff_t>(awaited_.size()));
  awaited_.clear();
  flush();
  return true;
}

std::uint64_t FramePipe::begun() const {
  if (closed_) return 0;
  if (connection_) return connection_->begun();
  return awaited_.empty() && !input_.empty() ? frames_ + 1 : 0;
}

void FramePipe::send(std::uint8_t type, std::span<const std::byte> payload) {
  if (closed_ || reads_no_more_ || (!connection_ && !out_.valid())) return;
  DISTRUN_CHECK(payload.size() <= kMaxFramePayload, "a frame is too large");
  if (connection_) {
    std::vector<std::byte> frame = {static_cast<std::byte>(type)};
    frame.insert(frame.end(), payload.begin(), payload.end());
    // Messages that the other side sent before it ended can still be read. The end of that input sets closed().
    reads_no_more_ = !connection_->send_frame(frame).ok();
    return flush();
  }
  std::vector<std::byte> frame(kHeader + payload.size());
  for (std::size_t i = 0; i < 4; ++i) frame[i] = static_cast<std::byte>(payload.size() >> (8 * i));
  frame[4] = static_cast<std::byte>(type);
  if (!payload.empty()) std::memcpy(frame.data() + kHeader, payload.data(), payload.size());
  queue_.push_back(std::move(frame));
  if (queue_.size() == 1) flush();
}

void FramePipe::flush() {
  if (connection_) {
    reads_no_more_ = !connection_->flush().ok() || reads_no_more_;
    return;
  }
  if (awaits_greeting()) return;
  while (!queue_.empty()) {
    const std::vector<std::byte>& front = queue_.front();
    const ssize_t n = ::write(out_.get(), front.data() + sent_of_front_, front.size() - sent_of_front_);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return;
      // The other side reads no more, but its earlier messages can still be read. The end of file sets closed().
      reads_no_more_ = true;
      queue_.clear();
      return;
    }
    sent_of_front_ += static_cast<std::size_t>(n);
    if (sent_of_front_ < front.size()) continue;
    queue_.pop_front();
    sent_of_front_ = 0;
  }
}

std::vector<Frame> FramePipe::receive_from_connection() {
  std::vector<Frame> frames;
  std::vector<std::byte> bytes;
  // Reads all available frames: poll() does not report frames that the connection has buffered. Credits bound their
  // total.
  for (;;) {
    const auto whole = connection_->receive_frame(bytes);
    if (!whole.ok()) {
      lose(whole.status());
      return frames;
    }
    if (!*whole) return frames;
    if (bytes.empty()) {
      lose({Errc::kProtocol, "an empty frame"});
      return frames;
    }
    frames.push_back({std::to_integer<std::uint8_t>(bytes.front()), {bytes.begin() + 1, bytes.end()}});
  }
}

std::vector<Frame> FramePipe::receive() {
  if (connection_) return receive_from_connection();
  if (closed_) return {};
  // Only one read of this size per call, so that the loop also serves its other descriptors.
  constexpr std::size_t kChunk = 256 * 1024;
  std::vector<Frame> frames;
  const std::size_t old = input_.size();
  input_.resize(old + kChunk);
  const ssize_t n = ::read(in_.get(), input_.data() + old, kChunk);
  input_.resize(old + (n > 0 ? static_cast<std::size_t>(n) : 0));
  if (n == 0) lose({});
  if (n < 0 && errno != EAGAIN && errno != EINTR) lose(errno_status("read from the other side", errno));
  if (!take_greeting()) return frames;
  std::size_t at = 0;
  while (input_.size() - at >= kHeader) {
    const std::size_t length = read_length(input_.data() + at);
    if (length > kMaxFramePayload) {
      lose({Errc::kProtocol, "a frame of " + std::to_string(length) + " bytes is too large"});
      break;
    }
    if (input_.size() - at < kHeader + length) break;
    const auto begin = input_.begin() + static_cast<std::ptrdiff_t>(at + kHeader);
    frames.push_back(
        {std::to_integer<std::uint8_t>(input_[at + 4]), {begin, begin + static_cast<std::ptrdiff_t>(length)}});
    at += kHeader + length;
  }
  input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(at));
  frames_ += frames.size();
  return frames;
}

void FramePipe::close_out() {
  flush();
  if (connection_) return lose({});
  if (in_.get() != out_.get()) out_.reset();
}

}  // namespace distrun::launcher
