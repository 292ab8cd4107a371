#include "runtime/net/secure/frame.h"

#include <algorithm>
#include <cstring>

#include "runtime/net/secure/secure_socket.h"

namespace distrun::net {
namespace {

constexpr std::size_t kLengthBytes = 2;
constexpr std::size_t kMaxRecord = kNoiseMaxMessage;
constexpr std::size_t kMaxRecordData = kMaxRecord - kNoiseTagBytes - 1;
constexpr std::size_t kSmallBuffer = 4096;  // per connection; grows to one record if messages are long
constexpr std::byte kLast{0};
constexpr std::byte kMore{1};

Status broken_stream(LinkEnd end, const char* how) {
  return Status(ErrorInfo{.code = Errc::kProtocol, .message = how, .usable = false, .link = end});
}

std::size_t record_length(const std::byte* at) {
  return std::to_integer<std::size_t>(at[0]) | std::to_integer<std::size_t>(at[1]) << 8;
}

}  // namespace

void FrameSealer::seal(std::span<const std::byte> frame, std::vector<std::byte>& out) {
  DISTRUN_CHECK(frame.size() <= kMaxFrame, "a frame above 16 MiB");
  do {
    const std::size_t size = std::min(frame.size(), kMaxRecordData);
    plain_.assign(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
    frame = frame.subspan(size);
    plain_.push_back(frame.empty() ? kLast : kMore);
    const std::size_t length = plain_.size() + kNoiseTagBytes;
    out.push_back(static_cast<std::byte>(length));
    out.push_back(static_cast<std::byte>(length >> 8));
    cipher_.encrypt({}, plain_, out);
  } while (!frame.empty());
}

std::span<std::byte> FrameOpener::writable() {
  std::size_t needed = kSmallBuffer;
  if (end_ - begin_ >= kLengthBytes) needed = std::max(needed, kLengthBytes + record_length(&buffer_[begin_]));
  if (begin_ > 0) {  // next() has taken all whole records, so this moves less than one record
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < needed) buffer_.resize(needed == kSmallBuffer ? kSmallBuffer : kLengthBytes + kMaxRecord);
  return std::span(buffer_).subspan(end_);
}

void FrameOpener::commit(std::size_t bytes) {
  DISTRUN_CHECK(bytes <= buffer_.size() - end_, "more bytes than there is room for");
  end_ += bytes;
}

Result<bool> FrameOpener::next(std::vector<std::byte>& out) {
  while (end_ - begin_ >= kLengthBytes) {
    const std::size_t length = record_length(&buffer_[begin_]);
    if (length < kNoiseTagBytes + 1) return broken_stream(LinkEnd::kMalformed, "a record is too short");
    if (end_ - begin_ < kLengthBytes + length) return false;
    const auto sealed = std::span<const std::byte>(buffer_).subspan(begin_ + kLengthBytes, length);
    if (!cipher_.decrypt({}, sealed, frame_)) {
      return broken_stream(LinkEnd::kTampered, "data was changed on the way (the tag of a record is wrong)");
    }
    begin_ += kLengthBytes + length;
    ++records_;
    const std::byte mark = frame_.back();
    frame_.pop_back();
    if (mark != kLast && mark != kMore) return broken_stream(LinkEnd::kMalformed, "a record of an unknown kind");
    if (frame_.size() > kMaxFrame) return broken_stream(LinkEnd::kMalformed, "a frame above 16 MiB");
    if (mark == kLast) {
      out = std::move(frame_);
      frame_.clear();
      return true;
    }
  }
  return false;
}

}  // namespace distrun::net
