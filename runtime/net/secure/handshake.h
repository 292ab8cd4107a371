// How two processes prove to each other that they belong to one job, as a state machine without I/O: bytes in, bytes
// out (docs/wire.md has the bytes). Four messages, because a first Noise message can be replayed:
//
//   initiator -> responder   preamble, Noise message 1 (Hello)
//   responder -> initiator   preamble, Noise message 2 (Hello)
//   initiator -> responder   confirmation, the first encrypted record: the initiator is alive and holds the key
//   responder -> initiator   verdict: welcome, or a text that says why not
//
// The prologue binds protocol version and job id; the Hellos (purpose, ranks, version, pid) are encrypted payloads and
// so part of the transcript that every later byte depends on. Nothing beyond a fixed 10-byte preamble is looked at
// before its sender has proved that it holds the key. Never asks for more than kMaxHandshakeMessage bytes at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/net/bytes/wire.h"
#include "runtime/net/secure/noise.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::net {

inline constexpr std::size_t kMaxHandshakeMessage = 2048;

class Handshake {
 public:
  enum class State {
    kRunning,
    kProved,  // responder only: the initiator is who peer() says; decide() is due
    kDone,
    kFailed,
  };

  // `self` is what this side says of itself; an initiator's `self.to` is whom it wants to reach.
  Handshake(NoiseHandshake::Role role, const JobKey& key, const Hello& self);

  [[nodiscard]] State state() const { return state_; }
  // What to send, to be taken after construction and after each feed() and decide(), an error's last words included.
  std::vector<std::byte> take_output() { return std::move(output_); }
  // Exactly so many bytes are needed for the next step; 0 when none are.
  [[nodiscard]] std::size_t wanted() const { return wanted_; }
  // `bytes` are exactly wanted(). An error says in one sentence why the two do not go together, from this side's view.
  Status feed(std::span<const std::byte> bytes);
  // Responder: welcome the initiator ("") or refuse it with a text that it will report.
  void decide(const std::string& refusal);

  // True once the other side has shown that it holds the key, even if the handshake fails later.
  [[nodiscard]] bool key_proved() const { return key_proved_; }
  [[nodiscard]] const Hello& peer() const { return peer_; }
  NoiseSession take_session();  // once, after kDone

 private:
  enum class Step { kPreamble, kNoise, kRecordLength, kRecord, kNothing };

  void want(Step step, std::size_t bytes);
  Status fail(Errc code, const std::string& text);
  void emit_preamble(std::span<const std::byte> noise_message);
  void emit_record(std::span<const std::byte> plain);
  [[nodiscard]] std::vector<std::byte> encode_hello() const;
  Status on_preamble(std::span<const std::byte> bytes);
  Status on_noise(std::span<const std::byte> bytes);
  Status on_record_length(std::span<const std::byte> bytes);
  Status on_record(std::span<const std::byte> bytes);
  Status read_hello(std::span<const std::byte> payload);
  [[nodiscard]] std::string mismatch() const;  // what differs between the two Hellos, or ""

  NoiseHandshake::Role role_;
  Hello self_;
  Hello peer_;
  NoiseHandshake noise_;
  std::optional<NoiseSession> session_;
  State state_ = State::kRunning;
  Step step_ = Step::kPreamble;
  std::size_t wanted_ = 0;
  bool key_proved_ = false;
  std::vector<std::byte> output_;
};

}  // namespace distrun::net
