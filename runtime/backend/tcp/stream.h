// One message at a time over a non-blocking socket, resumable at any byte. Payload goes from and to where it lives:
// header and payload share one system call, and nothing is copied in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/backend/tcp/message.h"
#include "runtime/base/status.h"
#include "runtime/net/bytes/pieces.h"
#include "runtime/net/secure/record_stream.h"

namespace distrun::backend::tcp {

enum class Io {
  kDone,     // the message is complete
  kBlocked,  // the socket takes or gives no more now
  kGone,     // end of file or a reset: the peer is no longer there
  kFault,    // what is to be sent or received lies in memory that this process may not read or write
  kForged,   // what came is not what the peer sealed
  kUsedUp,   // the connection's records have no numbers left
};

enum class Access { kRead, kWrite };
Status memory_fault(Access access);  // what an operation fails with then
constexpr bool breaks_seal(Io io) { return io == Io::kForged || io == Io::kUsedUp; }
Status broken_seal(Io io, int peer);  // likewise, on the connection to that world rank

using net::Pieces;

class MessageWriter {
 public:
  // From now on messages travel as records. `cipher` outlives this; null: they stay plain.
  void protect(net::RecordCipher* cipher);
  [[nodiscard]] bool idle() const { return pieces_.empty(); }
  // Only when idle. The caller then adds the payload (header.bytes of it) to pieces().
  void begin(const Header& header);
  Pieces& pieces() { return pieces_; }
  Io write(int fd);
  [[nodiscard]] int error() const { return error_; }  // errno's, after Io::kGone

 private:
  HeaderBytes header_{};
  Pieces pieces_;
  std::unique_ptr<net::RecordWriter> records_;  // null: plain
  bool sealed_ = false;                         // pieces_ has the records of the message
  int error_ = 0;
};

class MessageReader {
 public:
  // As in MessageWriter.
  void protect(net::RecordCipher* cipher);
  // Reads no further than the header; for when nothing is expected yet. kDone: header() is complete.
  Io read_header(int fd);
  // Where the payload of the next message goes. Bytes that arrive in one go with a wrong header land there as well, and
  // those of a forged record: never more than there is room for, and in an operation that fails.
  Pieces& payload() { return payload_; }
  // Header and payload. kDone when both are complete; has_header() may turn true before.
  Io read(int fd);
  [[nodiscard]] bool has_header() const { return header_read_ == kHeaderBytes; }
  // The number of the message whose header has not come as a whole, from 1; 0: there is none. Its payload may take as
  // long as it likes.
  [[nodiscard]] std::uint64_t begun() const { return at_boundary() || has_header() ? 0 : messages_ + 1; }
  [[nodiscard]] bool at_boundary() const { return header_read_ == 0; }  // nothing of the next message has been read
  [[nodiscard]] bool complete() const { return has_header() && payload_.empty(); }
  [[nodiscard]] int error() const { return error_; }  // errno's, after Io::kGone; 0: end of file
  [[nodiscard]] Result<Header> header() const { return decode(header_); }
  void next();  // the message has been dealt with

 private:
  Io receive(int fd, Pieces& into);
  Io read_records(int fd, bool body);
  [[nodiscard]] bool take(std::size_t bytes);

  HeaderBytes header_{};
  std::size_t header_read_ = 0;
  Pieces payload_;
  Pieces both_;                                 // scratch of read()
  std::unique_ptr<net::RecordReader> records_;  // null: plain
  int error_ = 0;
  std::uint64_t messages_ = 0;  // dealt with
};

}  // namespace distrun::backend::tcp
