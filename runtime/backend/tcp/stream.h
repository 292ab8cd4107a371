// Sends and receives one message at a time on a non-blocking socket, and can resume at any byte. The payload is not
// copied: the socket reads and writes the tensor's memory. Header and payload share one system call.
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
  kBlocked,  // the socket cannot send or receive more now
  kGone,     // end of file or reset: the peer is gone
  kFault,    // the memory to send from or to receive into cannot be read or written by this process
  kForged,   // the received bytes are not those that the peer sealed
  kUsedUp,   // the connection has used all its record numbers
};

enum class Access { kRead, kWrite };
Status memory_fault(Access access);  // the error of an operation after kFault
constexpr bool breaks_seal(Io io) { return io == Io::kForged || io == Io::kUsedUp; }
Status broken_seal(Io io, int peer);  // the error after kForged or kUsedUp, for the connection to this world rank

using net::Pieces;

class MessageWriter {
 public:
  // From now on messages are sent as encrypted or checksummed records. `cipher` must outlive this object. Null:
  // messages stay plain.
  void protect(net::RecordCipher* cipher);
  [[nodiscard]] bool idle() const { return pieces_.empty(); }
  // Call this only when idle(). The caller then adds the payload (header.bytes bytes) to pieces().
  void begin(const Header& header);
  Pieces& pieces() { return pieces_; }
  Io write(int fd);
  [[nodiscard]] int error() const { return error_; }  // errno after Io::kGone

 private:
  HeaderBytes header_{};
  Pieces pieces_;
  std::unique_ptr<net::RecordWriter> records_;  // null: plain
  bool sealed_ = false;                         // pieces_ already holds the message's records
  int error_ = 0;
};

class MessageReader {
 public:
  // See MessageWriter::protect().
  void protect(net::RecordCipher* cipher);
  // Reads at most the header. For use while no message is expected. After kDone, header() is complete.
  Io read_header(int fd);
  // The memory for the next message's payload. The bytes after a wrong header may also be written there, and so may the
  // bytes of a forged record. They never exceed this memory, and the operation fails in both cases.
  Pieces& payload() { return payload_; }
  // Reads header and payload. kDone: both are complete. has_header() may become true earlier.
  Io read(int fd);
  [[nodiscard]] bool has_header() const { return header_read_ == kHeaderBytes; }
  // The number (from 1) of the message whose header has arrived only in part; 0 if there is none. There is no time
  // limit for a payload.
  [[nodiscard]] std::uint64_t begun() const { return at_boundary() || has_header() ? 0 : messages_ + 1; }
  [[nodiscard]] bool at_boundary() const { return header_read_ == 0; }  // nothing of the next message has been read
  [[nodiscard]] bool complete() const { return has_header() && payload_.empty(); }
  [[nodiscard]] int error() const { return error_; }  // errno after Io::kGone; 0: end of file
  [[nodiscard]] Result<Header> header() const { return decode(header_); }
  void next();  // call it after the message has been handled

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
  std::uint64_t messages_ = 0;  // number of messages handled
};

}  // namespace distrun::backend::tcp
