// Frames (whole messages up to kMaxFrame) as encrypted records, and back. No I/O.
// A record is a u16 length and so many bytes of ciphertext; its plaintext ends with one byte: 0 ends a frame, 1 says
// that the frame goes on in the next record. The length is not trusted: a wrong one makes the tag wrong, and what is
// held for a frame are bytes that were authenticated already.
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
  // Appends the records of `frame`, which is at most kMaxFrame long, to `out`.
  void seal(std::span<const std::byte> frame, std::vector<std::byte>& out);

 private:
  NoiseCipher cipher_;
  std::vector<std::byte> plain_;  // one record's plaintext
};

class FrameOpener {
 public:
  explicit FrameOpener(NoiseCipher cipher) : cipher_(std::move(cipher)) {}
  // Room for bytes from the socket; commit() says how many were put there.
  std::span<std::byte> writable();
  void commit(std::size_t bytes);
  // True: `out` is the next whole frame. False: more bytes are needed. kProtocol: the stream is broken for good.
  Result<bool> next(std::vector<std::byte>& out);
  // True when no byte of an unfinished record or frame is held.
  [[nodiscard]] bool empty() const { return begin_ == end_ && frame_.empty(); }
  // The number of the record of which a part is held, from 1; 0: there is none.
  [[nodiscard]] std::uint64_t begun() const { return begin_ == end_ ? 0 : records_ + 1; }

 private:
  NoiseCipher cipher_;
  std::vector<std::byte> buffer_;  // received and not yet decrypted: [begin_, end_)
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t records_ = 0;     // taken so far
  std::vector<std::byte> frame_;  // decrypted records of the frame under way
};

}  // namespace distrun::net
