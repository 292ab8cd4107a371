// How two processes prove to each other that they belong to one job, as a state machine without I/O: bytes in, bytes
// out (docs/internals/wire.md has the bytes). It takes four messages, because a first Noise message can be replayed:
//
//   initiator -> responder   preamble, Noise message 1 (Hello)
//   responder -> initiator   preamble, Noise message 2 (Hello)
//   initiator -> responder   confirmation, the first encrypted record: the initiator is alive and holds the key
//   responder -> initiator   verdict: welcome, or a text with the reason for the refusal
//
// The prologue binds the protocol version and the job id. The Hellos (purpose, ranks, version, pid) are encrypted
// payloads, so they are part of the transcript, and every later byte depends on them. The fixed 10-byte preamble is the
// only input that is parsed before its sender has proved that it holds the key. A step never asks for more than
// kMaxHandshakeMessage bytes.
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
    kProved,  // responder only: peer() is proved; the caller must call decide()
    kDone,
    kFailed,
  };

  // `self` describes this side. For an initiator, `self.to` is the rank that it wants to reach.
  Handshake(NoiseHandshake::Role role, const JobKey& key, const Hello& self);

  [[nodiscard]] State state() const { return state_; }
  // The bytes to send. Take them after construction and after each feed() and decide(), also after an error.
  std::vector<std::byte> take_output() { return std::move(output_); }
  // The next step needs exactly this number of bytes; 0 if it needs none.
  [[nodiscard]] std::size_t wanted() const { return wanted_; }
  // `bytes` are exactly wanted(). An error says in one sentence why the two sides do not match, as this side sees it.
  Status feed(std::span<const std::byte> bytes);
  // Responder only: "" welcomes the initiator. Any other text refuses it, and the initiator reports that text.
  void decide(const std::string& refusal);

  // True once the other side has proved that it holds the key, even if the handshake fails later.
  [[nodiscard]] bool key_proved() const { return key_proved_; }
  // What differs between the two Hellos, or "". Known once the key is proved. A responder does not hear it from an
  // initiator, which leaves when it sees the difference.
  [[nodiscard]] std::string difference() const { return key_proved_ ? mismatch() : ""; }
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
  [[nodiscard]] std::string mismatch() const;

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
