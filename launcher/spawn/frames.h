// Framed messages over a pair of descriptors, between the head and an agent. The descriptors are pipes (also ssh's
// standard input and output) or an authenticated connection. Never blocks. On a pipe a frame is u32 length, u8 type,
// payload. On a connection it is one frame of the connection, with u8 type and payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::launcher {

struct Frame {
  std::uint8_t type = 0;
  std::vector<std::byte> payload;
};

inline constexpr std::size_t kMaxFramePayload = net::kMaxFrame - 1;  // one byte is for the type
// The limit for the output of a login shell before the other side's greeting.
inline constexpr std::size_t kMaxNoise = 64 * 1024;
inline constexpr std::string_view kMuchNoise =
    "more than 64 KiB of other output came before the first message of the agent";

class FramePipe {
 public:
  FramePipe() = default;
  FramePipe(Fd in, Fd out);  // sets both non-blocking
  explicit FramePipe(std::unique_ptr<net::SecureSocket> connection);

  [[nodiscard]] int in() const { return connection_ ? connection_->fd() : in_.get(); }
  [[nodiscard]] int out() const { return connection_ ? connection_->fd() : out_.get(); }
  [[nodiscard]] bool is_connection() const { return connection_ != nullptr; }
  [[nodiscard]] bool wants_write() const {
    return connection_ ? connection_->wants_write() : !queue_.empty() && !awaits_greeting();
  }
  [[nodiscard]] bool closed() const { return closed_; }  // the other side is gone
  [[nodiscard]] const Status& fault() const { return fault_; }

  // The kernel ends an idle connection later than this side would itself, after this many seconds.
  void outlast(double seconds);

  // Sends the greeting that precedes all frames. Call it before the first send().
  void greet(std::string_view greeting);
  // Bytes before the other side's greeting are not frames. More than kMaxNoise of them is an error. No frame is written
  // before the greeting has come: until then a login shell may read what this side writes.
  void await(std::string_view greeting) { awaited_ = greeting; }
  // False on a connection, whose other side has proved that it has the key.
  [[nodiscard]] bool awaits_greeting() const { return !connection_ && !awaited_.empty(); }
  // The bytes before the greeting, or instead of it.
  [[nodiscard]] const std::string& noise() const { return noise_; }

  // The number of the frame, or record, that has arrived only in part; 0: none.
  [[nodiscard]] std::uint64_t begun() const;

  void send(std::uint8_t type, std::span<const std::byte> payload);
  void flush();
  // Returns the whole frames that have arrived. After end of file or an error: closed().
  std::vector<Frame> receive();
  // Treats the other side as gone: sets closed(), and nothing is sent any more.
  void abandon() { lose({}); }
  // Tells the other side that no more frames come.
  void close_out();

 private:
  void lose(Status why);
  std::vector<Frame> receive_from_connection();
  bool take_greeting();

  std::unique_ptr<net::SecureSocket> connection_;  // or the two descriptors
  Fd in_;
  Fd out_;
  std::vector<std::byte> input_;
  std::uint64_t frames_ = 0;  // received over the two descriptors
  std::deque<std::vector<std::byte>> queue_;
  std::size_t sent_of_front_ = 0;
  std::string awaited_;
  std::string noise_;
  bool closed_ = false;
  bool reads_no_more_ = false;  // the other side reads no more
  Status fault_;
};

}  // namespace distrun::launcher
