// Framed messages over a pair of descriptors: how the head and an agent talk, over pipes (ssh's standard input and
// output included) or over an authenticated connection. Never blocks. On a pipe a frame is u32 length, u8 type,
// payload; on a connection it is a frame of that, u8 type and payload.
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

inline constexpr std::size_t kMaxFramePayload = net::kMaxFrame - 1;  // the type's byte
// What a login shell may print before the other side speaks.
inline constexpr std::size_t kMaxNoise = 64 * 1024;

class FramePipe {
 public:
  FramePipe() = default;
  FramePipe(Fd in, Fd out);  // sets both non-blocking
  explicit FramePipe(std::unique_ptr<net::SecureSocket> connection);

  [[nodiscard]] int in() const { return connection_ ? connection_->fd() : in_.get(); }
  [[nodiscard]] int out() const { return connection_ ? connection_->fd() : out_.get(); }
  [[nodiscard]] bool is_connection() const { return connection_ != nullptr; }
  [[nodiscard]] bool wants_write() const { return connection_ ? connection_->wants_write() : !queue_.empty(); }
  [[nodiscard]] bool closed() const { return closed_; }  // the other side is gone
  [[nodiscard]] const Status& fault() const { return fault_; }

  // The kernel does not end a connection that is idle before this side itself would, after so many seconds.
  void outlast(double seconds);

  // Says that frames follow; before the first send().
  void greet(std::string_view greeting);
  // Whatever comes before the other side's greeting is no frame. More of it than kMaxNoise is a fault.
  void await(std::string_view greeting) { awaited_ = greeting; }
  // What came before the greeting, or instead of it.
  [[nodiscard]] const std::string& noise() const { return noise_; }

  // The number of the frame, or record, of which a part has come and the rest has not; 0: there is none.
  [[nodiscard]] std::uint64_t begun() const;

  void send(std::uint8_t type, std::span<const std::byte> payload);
  void flush();
  // Whole frames that have arrived. After end of file or a fault: closed().
  std::vector<Frame> receive();
  // The other side is taken to be gone: closed(), and nothing is sent any more.
  void abandon() { lose({}); }
  // Tells the other side that nothing more comes.
  void close_out();

 private:
  void lose(Status why);
  std::vector<Frame> receive_from_connection();
  bool greeted();

  std::unique_ptr<net::SecureSocket> connection_;  // or the two descriptors
  Fd in_;
  Fd out_;
  std::vector<std::byte> input_;
  std::uint64_t frames_ = 0;  // that have come over the two descriptors
  std::deque<std::vector<std::byte>> queue_;
  std::size_t sent_of_front_ = 0;
  std::string awaited_;
  std::string noise_;
  bool closed_ = false;
  bool deaf_ = false;  // the other side reads no more
  Status fault_;
};

}  // namespace distrun::launcher
