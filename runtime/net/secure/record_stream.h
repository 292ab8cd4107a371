// Converts messages with a head and a body into records, and back. The head is a separate record of a size that both
// sides know. So the size of the body is trusted only after the head has been opened. On the wire: head, tag, and, if
// there is a body, body, tag. No I/O: the caller moves the pieces of memory. A body is sealed directly from its memory
// and opened in its memory. Only a body in several pieces is gathered in a buffer.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/net/bytes/pieces.h"
#include "runtime/net/secure/record_cipher.h"

namespace distrun::net {

// Memory for one body; grows to the size of the largest.
class RecordBuffer {
 public:
  std::byte* of(std::size_t bytes);

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
};

class RecordWriter {
 public:
  // `cipher` must outlive this.
  RecordWriter(RecordCipher& cipher, std::size_t head_bytes);
  // Replaces `message`, a head and its body, by the pieces to send. They are in this object and in the body's own
  // memory, and must be sent before the next message. False: the nonces are used up.
  [[nodiscard]] bool seal(std::span<const std::byte> head, Pieces& message);

 private:
  RecordCipher& cipher_;
  std::vector<std::byte> head_;
  RecordTag head_tag_{};
  RecordBuffer buffer_;
  RecordTag body_tag_{};
};

class RecordReader {
 public:
  // `cipher` must outlive this.
  RecordReader(RecordCipher& cipher, std::size_t head_bytes);
  // True if the head is complete and opened. `head()` is then its plaintext.
  [[nodiscard]] bool has_head() const { return has_head_; }
  [[nodiscard]] std::span<const std::byte> head() const { return head_; }
  // True if no byte of the next message has been read.
  [[nodiscard]] bool at_boundary() const { return head_read_ == 0; }
  // Sets the memory for the body. Call it once per message.
  void place(const Pieces& body);
  [[nodiscard]] bool placed() const { return placed_; }
  [[nodiscard]] std::size_t body_bytes() const { return body_.size(); }
  // Appends the memory for the missing bytes of the message: of the head, and of the body if it is placed.
  void add_missing(Pieces& into) const;
  // Call this when `bytes` bytes have arrived in that memory. False: the head differs from what the other side sealed.
  [[nodiscard]] bool take(std::size_t bytes);
  // True if the whole body has arrived. Then call open_body(), if the head announces a body of this size. It returns
  // false if the body differs from what the other side sealed.
  [[nodiscard]] bool has_body() const { return has_head_ && placed_ && missing_.empty(); }
  [[nodiscard]] bool open_body();
  void next();  // call this after the message has been handled

 private:
  RecordCipher& cipher_;
  std::vector<std::byte> head_;
  RecordTag head_tag_{};
  std::size_t head_read_ = 0;  // bytes, with the tag
  bool has_head_ = false;
  bool placed_ = false;
  Pieces body_;     // the final memory of the body
  Pieces missing_;  // bytes of the body and its tag that have not arrived
  std::byte* target_ = nullptr;
  RecordBuffer buffer_;
  RecordTag body_tag_{};
};

}  // namespace distrun::net
