// Converts frames (whole messages up to kMaxFrame) into encrypted records, and back. No I/O. A record is a u16 length
// and that many bytes of ciphertext. The last byte of its plaintext is 0 at the end of a frame, and 1 if the frame
// continues in the next record. The length is not trusted: a wrong length makes the tag wrong. All bytes that are held
// for a frame have already been authenticated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/net/secure/noise.h"

namespace distrun::net {

class FrameSealer {
 public:
  explicit FrameSealer(NoiseCipher cipher) : cipher_(std::move(cipher)) {}
  // Appends the records of `frame`, which has at most kMaxFrame bytes, to `out`.
  void seal(std::span<const std::byte> frame, std::vector<std::byte>& out);

 private:
  NoiseCipher cipher_;
  std::vector<std::byte> plain_;  // the plaintext of one record
};

class FrameOpener {
 public:
  explicit FrameOpener(NoiseCipher cipher) : cipher_(std::move(cipher)) {}
  // Returns room for bytes from the socket. commit() says how many bytes were put there.
  std::span<std::byte> writable();
  void commit(std::size_t bytes);
  // True: `out` is the next whole frame. False: more bytes are needed. kProtocol: the stream is broken for good.
  Result<bool> next(std::vector<std::byte>& out);
  // True if no byte of an unfinished record or frame is held.
  [[nodiscard]] bool empty() const { return begin_ == end_ && frame_.empty(); }
  // The number, from 1, of the record that is held in part; 0 if there is none.
  [[nodiscard]] std::uint64_t begun() const { return begin_ == end_ ? 0 : records_ + 1; }

 private:
  NoiseCipher cipher_;
  std::vector<std::byte> buffer_;  // received and not yet decrypted: [begin_, end_)
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t records_ = 0;     // number of records opened so far
  std::vector<std::byte> frame_;  // decrypted records of the current frame
};

}  // namespace distrun::net
