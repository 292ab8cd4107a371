#include "runtime/net/secure/handshake.h"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace distrun::net {
namespace {

constexpr std::array<std::byte, 4> kHandshakeMagic{std::byte{'d'}, std::byte{'r'}, std::byte{'u'}, std::byte{'n'}};
constexpr std::size_t kPreambleBytes = 10;  // magic, u32 protocol version, u16 length of the Noise message
constexpr std::size_t kMaxHelloText = 128;
constexpr std::size_t kMaxRefusal = 1024;
constexpr std::size_t kMaxNoiseMessage = 512;
static_assert(kMaxRefusal + 16 + kNoiseTagBytes < kMaxHandshakeMessage);

std::vector<std::byte> prologue(const Hello& self) {
  WireWriter writer;
  writer.string("distrun handshake").u32(kProtocolVersion).string(self.job_id);
  return writer.take();
}

Hello completed(Hello hello) {
  DISTRUN_CHECK(hello.purpose.size() <= kMaxHelloText && hello.version.size() <= kMaxHelloText,
                "a purpose or version above 128 bytes");
  if (hello.version.empty()) hello.version = DISTRUN_VERSION_TEXT;
  if (hello.pid == 0) hello.pid = static_cast<int>(::getpid());
  return hello;
}

// The job id is in the prologue. If it differed, the message could not be decrypted.
template <class V>
void hello_fields(V& v, Ref<V, Hello> hello) {
  v.text(hello.purpose, kMaxHelloText).text(hello.version, kMaxHelloText)(hello.from, hello.to, hello.pid);
}

std::string who(int rank) { return rank < 0 ? "the launcher" : "rank " + std::to_string(rank); }

}  // namespace

Handshake::Handshake(NoiseHandshake::Role role, const JobKey& key, const Hello& self)
    : role_(role),
      self_(completed(self)),
      noise_({.role = role,
              .psk = std::span<const unsigned char, kNoiseKeyBytes>(key.data(), kNoiseKeyBytes),
              .prologue = prologue(self),
              .ephemeral = std::nullopt}) {
  if (role_ == NoiseHandshake::Role::kInitiator) emit_preamble(noise_.write_message(encode_hello()));
  want(Step::kPreamble, kPreambleBytes);
}

Status Handshake::feed(std::span<const std::byte> bytes) {
  DISTRUN_CHECK(state_ == State::kRunning && bytes.size() == wanted_, "a handshake is fed what it did not ask for");
  switch (step_) {
    case Step::kPreamble:
      return on_preamble(bytes);
    case Step::kNoise:
      return on_noise(bytes);
    case Step::kRecordLength:
      return on_record_length(bytes);
    case Step::kRecord:
      return on_record(bytes);
    case Step::kNothing:
      break;
  }
  return {};
}

void Handshake::decide(const std::string& refusal) {
  DISTRUN_CHECK(state_ == State::kProved, "a verdict on a peer that has not proved itself");
  emit_record(WireWriter().string(refusal.substr(0, kMaxRefusal)).view());
  state_ = refusal.empty() ? State::kDone : State::kFailed;
}

NoiseSession Handshake::take_session() {
  DISTRUN_CHECK(state_ == State::kDone && session_, "a session is taken from an unfinished handshake");
  NoiseSession session = *std::move(session_);
  session_.reset();
  return session;
}

void Handshake::want(Step step, std::size_t bytes) {
  step_ = step;
  wanted_ = bytes;
}

Status Handshake::fail(Errc code, const std::string& text) {
  state_ = State::kFailed;
  want(Step::kNothing, 0);
  return {code, text};
}

void Handshake::emit_preamble(std::span<const std::byte> noise_message) {
  WireWriter writer;
  writer.raw(kHandshakeMagic)
      .u32(kProtocolVersion)
      .u16(static_cast<std::uint16_t>(noise_message.size()))
      .raw(noise_message);
  const auto bytes = writer.view();
  output_.insert(output_.end(), bytes.begin(), bytes.end());
}

void Handshake::emit_record(std::span<const std::byte> plain) {
  const auto length = static_cast<std::uint16_t>(plain.size() + kNoiseTagBytes);
  output_.push_back(static_cast<std::byte>(length));
  output_.push_back(static_cast<std::byte>(length >> 8));
  session_->send.encrypt({}, plain, output_);
}

std::vector<std::byte> Handshake::encode_hello() const {
  Hello hello = self_;
  if (role_ == NoiseHandshake::Role::kResponder) {
    hello.to = peer_.from;
    // A responder without a purpose lets its owner decide, and repeats the initiator's purpose.
    if (hello.purpose.empty()) hello.purpose = peer_.purpose;
  }
  WireWriter writer;
  hello_fields(writer, hello);
  return writer.take();
}

Status Handshake::on_preamble(std::span<const std::byte> bytes) {
  if (!std::equal(kHandshakeMagic.begin(), kHandshakeMagic.end(), bytes.begin())) {
    return fail(Errc::kProtocol, "the other side is not a process of distrun");
  }
  WireReader reader(bytes.subspan(kHandshakeMagic.size()));
  const std::uint32_t version = reader.u32();
  const std::size_t length = reader.u16();
  const bool responder = role_ == NoiseHandshake::Role::kResponder;
  if (version != kProtocolVersion) {
    if (responder) emit_preamble({});  // so that the other side can name both versions too
    return fail(Errc::kProtocol, "install the same version of distrun on all hosts: the other side uses version " +
                                     std::to_string(version) + " of the protocol, and this process version " +
                                     std::to_string(kProtocolVersion));
  }
  if (length == 0 && !responder) {
    return fail(Errc::kProtocol,
                "the other side belongs to another job: it refused the key or job id. Is the address or the key an old "
                "one?");
  }
  if (length < kNoiseKeyBytes + kNoiseTagBytes || length > kMaxNoiseMessage) {
    return fail(Errc::kProtocol,
                "the other side sent a malformed handshake message (" + std::to_string(length) + " bytes)");
  }
  want(Step::kNoise, length);
  return {};
}

Status Handshake::on_noise(std::span<const std::byte> bytes) {
  const bool responder = role_ == NoiseHandshake::Role::kResponder;
  const auto payload = noise_.read_message(bytes);
  if (!payload.ok()) {
    if (responder) emit_preamble({});  // an explicit refusal, so that the other side does not try again
    return fail(Errc::kProtocol, payload.status().message() + ", or it belongs to another job");
  }
  key_proved_ = true;
  if (const Status read = read_hello(*payload); !read.ok()) return fail(Errc::kProtocol, read.message());
  if (responder) {
    emit_preamble(noise_.write_message(encode_hello()));
    session_ = noise_.split();
  } else {
    if (const std::string difference = mismatch(); !difference.empty()) return fail(Errc::kProtocol, difference);
    session_ = noise_.split();
    emit_record({});
  }
  want(Step::kRecordLength, 2);
  return {};
}

Status Handshake::on_record_length(std::span<const std::byte> bytes) {
  const std::size_t length = WireReader(bytes).u16();
  const bool responder = role_ == NoiseHandshake::Role::kResponder;
  const std::size_t longest = (responder ? 0 : kMaxRefusal + 4) + kNoiseTagBytes;
  if (length < kNoiseTagBytes || length > longest) {
    return fail(Errc::kProtocol,
                "the other side sent a malformed handshake record (" + std::to_string(length) + " bytes)");
  }
  want(Step::kRecord, length);
  return {};
}

Status Handshake::on_record(std::span<const std::byte> bytes) {
  std::vector<std::byte> plain;
  if (!session_->receive.decrypt({}, bytes, plain)) {
    return fail(Errc::kProtocol, "the other side repeated an old handshake, or a byte was changed on the way");
  }
  want(Step::kNothing, 0);
  if (role_ == NoiseHandshake::Role::kResponder) {
    state_ = State::kProved;
    if (const std::string difference = mismatch(); !difference.empty()) {
      decide(difference);
      return {Errc::kProtocol, difference};
    }
    return {};
  }
  WireReader reader(plain);
  const std::string refusal = reader.string(kMaxRefusal);
  if (const Status read = reader.finish("the verdict"); !read.ok()) return fail(Errc::kProtocol, read.message());
  if (!refusal.empty()) return fail(Errc::kProtocol, refusal);
  state_ = State::kDone;
  return {};
}

Status Handshake::read_hello(std::span<const std::byte> payload) {
  WireReader reader(payload);
  hello_fields(reader, peer_);
  peer_.job_id = self_.job_id;
  return reader.finish("the Hello");
}

std::string Handshake::mismatch() const {
  if (peer_.version != self_.version) {
    const bool alike = self_.from == peer_.from;  // an agent and its launcher have no ranks
    return (alike ? "this side" : who(self_.from)) + " runs distrun " + self_.version + " and " +
           (alike ? "the other side" : who(peer_.from)) + " runs distrun " + peer_.version +
           ". Install the same version on all hosts";
  }
  const bool responder = role_ == NoiseHandshake::Role::kResponder;
  if (responder ? peer_.to != self_.from : (peer_.from != self_.to || peer_.to != self_.from)) {
    return responder ? "this is " + who(self_.from) + ", not " + who(peer_.to)
                     : "the other side is " + who(peer_.from) + ", not " + who(self_.to);
  }
  if (!self_.purpose.empty() && peer_.purpose != self_.purpose) {
    return "the connection is for '" + peer_.purpose + "', and '" + self_.purpose + "' was expected";
  }
  return {};
}

}  // namespace distrun::net
