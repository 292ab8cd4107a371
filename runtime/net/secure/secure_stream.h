// The SecureSocket that a finished handshake produces, on either side.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/system/fork_guard.h"
#include "runtime/net/secure/frame.h"
#include "runtime/net/secure/noise.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::net {

class SecureStream final : public SecureSocket {
 public:
  // `unsent` are the handshake bytes that the socket has not taken yet. They are sent before any frame.
  SecureStream(Fd fd, NoiseSession session, Hello peer, std::vector<std::byte> unsent);

  [[nodiscard]] int fd() const override { return fd_.get(); }
  [[nodiscard]] const Hello& peer() const override { return peer_; }
  Status send_frame(std::span<const std::byte> frame) override;
  Result<bool> receive_frame(std::vector<std::byte>& out) override;
  Status flush() override;
  [[nodiscard]] bool wants_write() const override { return queued() > 0; }
  [[nodiscard]] std::size_t queued() const override { return queue_.size() - sent_; }
  [[nodiscard]] std::uint64_t begun() const override { return opener_.begun(); }
  Status give_up(LinkEnd end, const std::string& how) override;
  Status send_frame_blocking(std::span<const std::byte> frame, TimePoint deadline) override;
  Result<std::vector<std::byte>> receive_frame_blocking(TimePoint deadline) override;
  Result<Fd> release_plain() override;
  [[nodiscard]] const ExportedKeys& exported_keys() const override { return exported_; }

 private:
  [[nodiscard]] Status gone(int error) const;  // of errno; 0: end of file
  [[nodiscard]] Status gone(LinkEnd end, const std::string& how) const;
  [[nodiscard]] Status broken(const Status& why) const;
  Result<bool> receive_some();  // false if the socket has no bytes now

  GuardedFd fd_;
  Hello peer_;
  std::string name_;  // for errors: "rank 3 at 10.0.0.7:4242 (control)"
  FrameSealer sealer_;
  FrameOpener opener_;
  ExportedKeys exported_;
  std::vector<std::byte> queue_;  // sealed bytes; [0, sent_) has been sent
  std::size_t sent_ = 0;
  // Two errors, because messages that a peer sent before it died can still be read after a write has failed.
  Status send_error_;
  Status receive_error_;
};

}  // namespace distrun::net
