#include "runtime/net/secure/record_stream.h"

#include <algorithm>
#include <cstring>

namespace distrun::net {
namespace {

bool in_one_piece(const Pieces& pieces) {
  std::size_t count = 0;
  pieces.for_each([&](const std::byte*, std::size_t) { ++count; });
  return count == 1;
}

std::byte* first_of(const Pieces& pieces) {
  std::byte* first = nullptr;
  pieces.for_each([&](std::byte* data, std::size_t) { first = first == nullptr ? data : first; });
  return first;
}

}  // namespace

std::byte* RecordBuffer::of(std::size_t bytes) {
  if (bytes > size_) {
    memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    size_ = bytes;
  }
  return memory_.get();
}

RecordWriter::RecordWriter(RecordCipher& cipher, std::size_t head_bytes) : cipher_(cipher), head_(head_bytes) {}

bool RecordWriter::seal(std::span<const std::byte> head, Pieces& message) {
  DISTRUN_CHECK(head.size() == head_.size() && message.size() >= head.size(), "a message begins with its head");
  message.advance(head.size());
  std::ranges::copy(head, head_.begin());
  if (!cipher_.seal(head_, head_.data(), head_tag_)) return false;
  const std::size_t size = message.size();
  const bool whole = in_one_piece(message);
  const std::byte* body = first_of(message);
  std::byte* sealed = nullptr;
  if (size > 0 && (cipher_.encrypts() || !whole)) sealed = buffer_.of(size);
  if (size > 0 && !whole) {
    std::byte* at = sealed;
    message.for_each([&](const std::byte* data, std::size_t bytes) {
      std::memcpy(at, data, bytes);
      at += bytes;
    });
    body = sealed;
  }
  if (size > 0 && !cipher_.seal({body, size}, sealed, body_tag_)) return false;
  message.clear();
  message.add(head_.data(), head_.size());
  message.add(head_tag_.data(), head_tag_.size());
  if (size == 0) return true;
  message.add(sealed == nullptr ? body : sealed, size);
  message.add(body_tag_.data(), body_tag_.size());
  return true;
}

RecordReader::RecordReader(RecordCipher& cipher, std::size_t head_bytes) : cipher_(cipher), head_(head_bytes) {}

void RecordReader::place(const Pieces& body) {
  DISTRUN_CHECK(!placed_, "a body has one place");
  placed_ = true;
  body_ = body;
  if (body.empty()) return;
  target_ = in_one_piece(body) ? first_of(body) : buffer_.of(body.size());
  missing_.add(target_, body.size());
  missing_.add(body_tag_.data(), body_tag_.size());
}

void RecordReader::add_missing(Pieces& into) const {
  if (head_read_ < head_.size()) into.add(head_.data() + head_read_, head_.size() - head_read_);
  const std::size_t tag_read = head_read_ - std::min(head_read_, head_.size());
  into.add(head_tag_.data() + tag_read, head_tag_.size() - tag_read);
  missing_.for_each([&](const std::byte* data, std::size_t bytes) { into.add(data, bytes); });
}

bool RecordReader::take(std::size_t bytes) {
  const std::size_t of_head = std::min(bytes, head_.size() + head_tag_.size() - head_read_);
  head_read_ += of_head;
  if (!has_head_ && head_read_ == head_.size() + head_tag_.size()) {
    if (!cipher_.open(head_, head_tag_)) return false;
    has_head_ = true;
  }
  if (bytes == of_head) return true;
  missing_.advance(bytes - of_head);
  return true;
}

bool RecordReader::open_body() {
  if (body_.empty()) return true;
  if (!cipher_.open({target_, body_.size()}, body_tag_)) return false;
  const std::byte* from = target_;
  body_.for_each([&](std::byte* to, std::size_t bytes) {
    if (to != from) std::memcpy(to, from, bytes);
    from += bytes;
  });
  return true;
}

void RecordReader::next() {
  head_read_ = 0;
  has_head_ = placed_ = false;
  body_.clear();
  missing_.clear();
}

}  // namespace distrun::net
