// Messages of a head and a body as records, and back: the head is a record of its own, of a size that both sides know,
// so that the body's size is believed only after the head has been opened. On the wire: head, tag, and where there is a
// body, body, tag. No I/O: what is to be moved are pieces of memory. Bodies are sealed from where they lie and opened
// where they lie; only one that lies in several pieces is gathered in a buffer.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/net/bytes/pieces.h"
#include "runtime/net/secure/record_cipher.h"

namespace distrun::net {

// Memory for one body; grows to the largest.
class RecordBuffer {
 public:
  std::byte* of(std::size_t bytes);

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
};

class RecordWriter {
 public:
  // `cipher` outlives this.
  RecordWriter(RecordCipher& cipher, std::size_t head_bytes);
  // Replaces `message`, a head and its body, by what goes on the wire. That lies here and in the body's own memory, and
  // must have been sent before the next message. False: the nonces are used up.
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
  // `cipher` outlives this.
  RecordReader(RecordCipher& cipher, std::size_t head_bytes);
  // Whether the head is complete and opened; `head()` is its text then.
  [[nodiscard]] bool has_head() const { return has_head_; }
  [[nodiscard]] std::span<const std::byte> head() const { return head_; }
  // Nothing of the next message has been read.
  [[nodiscard]] bool at_boundary() const { return head_read_ == 0; }
  // Where the body goes. Once per message.
  void place(const Pieces& body);
  [[nodiscard]] bool placed() const { return placed_; }
  [[nodiscard]] std::size_t body_bytes() const { return body_.size(); }
  // Appends the memory for what is missing of the message: of the head, and of the body where it is placed.
  void add_missing(Pieces& into) const;
  // So many bytes have come there. False: the head is not what the other side sealed.
  [[nodiscard]] bool take(std::size_t bytes);
  // Whether all of the body is there. open_body() is due then, if the head announces a body of this size. False: it is
  // not what the other side sealed.
  [[nodiscard]] bool has_body() const { return has_head_ && placed_ && missing_.empty(); }
  [[nodiscard]] bool open_body();
  void next();  // the message has been dealt with

 private:
  RecordCipher& cipher_;
  std::vector<std::byte> head_;
  RecordTag head_tag_{};
  std::size_t head_read_ = 0;  // tag included
  bool has_head_ = false;
  bool placed_ = false;
  Pieces body_;     // where it goes in the end
  Pieces missing_;  // of the body and its tag
  std::byte* landing_ = nullptr;
  RecordBuffer buffer_;
  RecordTag body_tag_{};
};

}  // namespace distrun::net
