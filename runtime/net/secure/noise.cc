#include "runtime/net/secure/noise.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/net/bytes/wire.h"

namespace distrun::net {
namespace {

constexpr std::string_view kProtocolName = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
constexpr std::string_view kExportLabel = "distrun exported keys";

const unsigned char* chars(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

NoiseKey hmac(const NoiseKey& key, std::span<const unsigned char> a, std::span<const unsigned char> b = {}) {
  crypto_auth_hmacsha256_state state;
  NoiseKey out;
  crypto_auth_hmacsha256_init(&state, key.data(), key.size());
  crypto_auth_hmacsha256_update(&state, a.data(), a.size());
  crypto_auth_hmacsha256_update(&state, b.data(), b.size());
  crypto_auth_hmacsha256_final(&state, out.data());
  sodium_memzero(&state, sizeof(state));
  return out;
}

// HKDF of the Noise specification, section 4.3. N is 2 or 3.
template <std::size_t N>
std::array<NoiseKey, N> hkdf(const NoiseKey& chaining_key, std::span<const unsigned char> input) {
  NoiseKey temporary = hmac(chaining_key, input);
  std::array<NoiseKey, N> outputs;
  for (std::size_t i = 0; i < N; ++i) {
    const unsigned char index[1] = {static_cast<unsigned char>(i + 1)};
    outputs[i] = i == 0 ? hmac(temporary, index) : hmac(temporary, outputs[i - 1], index);
  }
  sodium_memzero(temporary.data(), temporary.size());
  return outputs;
}

template <std::size_t N>
void wipe(std::array<NoiseKey, N>& keys) {
  for (auto& key : keys) sodium_memzero(key.data(), key.size());
}

}  // namespace

NoiseCipher::~NoiseCipher() { sodium_memzero(key_.data(), key_.size()); }

ExportedKeys::~ExportedKeys() {
  sodium_memzero(send.data(), send.size());
  sodium_memzero(receive.data(), receive.size());
}

// Four zero bytes, then the counter in little-endian order (section 12.3).
std::array<unsigned char, 12> NoiseCipher::nonce() const {
  std::array<unsigned char, 12> bytes{};
  for (std::size_t i = 0; i < 8; ++i) bytes[4 + i] = static_cast<unsigned char>(counter_ >> (8 * i));
  return bytes;
}

void NoiseCipher::encrypt(std::span<const std::byte> ad, std::span<const std::byte> plain,
                          std::vector<std::byte>& out) {
  DISTRUN_CHECK(counter_ != std::numeric_limits<std::uint64_t>::max(), "the nonces of a session are used up");
  const std::size_t begin = out.size();
  out.resize(begin + plain.size() + kNoiseTagBytes);
  crypto_aead_chacha20poly1305_ietf_encrypt(reinterpret_cast<unsigned char*>(out.data() + begin), nullptr, chars(plain),
                                            plain.size(), chars(ad), ad.size(), nullptr, nonce().data(), key_.data());
  ++counter_;
}

bool NoiseCipher::decrypt(std::span<const std::byte> ad, std::span<const std::byte> sealed,
                          std::vector<std::byte>& out) {
  if (sealed.size() < kNoiseTagBytes || counter_ == std::numeric_limits<std::uint64_t>::max()) return false;
  const std::size_t begin = out.size();
  out.resize(begin + sealed.size() - kNoiseTagBytes);
  const int rc = crypto_aead_chacha20poly1305_ietf_decrypt(reinterpret_cast<unsigned char*>(out.data() + begin),
                                                           nullptr, nullptr, chars(sealed), sealed.size(), chars(ad),
                                                           ad.size(), nonce().data(), key_.data());
  if (rc != 0) {
    out.resize(begin);
    return false;
  }
  ++counter_;
  return true;
}

NoiseHandshake::NoiseHandshake(const Options& options)
    : role_(options.role), cipher_(NoiseKey{}), fixed_(options.ephemeral) {
  DISTRUN_CHECK(sodium_init() >= 0, "libsodium cannot be initialised");
  // The specification hashes a name that is longer than a hash (section 5.2). This name has 36 bytes.
  static_assert(kProtocolName.size() > kNoiseKeyBytes);
  crypto_hash_sha256(hash_.data(), chars(as_bytes(kProtocolName)), kProtocolName.size());
  chaining_key_ = hash_;
  mix_hash(options.prologue);
  mix_key_and_hash(options.psk);  // psk0: before the first message, on both sides
}

NoiseHandshake::~NoiseHandshake() {
  sodium_memzero(secret_.data(), secret_.size());
  sodium_memzero(chaining_key_.data(), chaining_key_.size());
}

bool NoiseHandshake::my_turn_to_write() const { return !failed_ && messages_ == (role_ == Role::kInitiator ? 0 : 1); }

void NoiseHandshake::mix_hash(std::span<const std::byte> data) {
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  crypto_hash_sha256_update(&state, hash_.data(), hash_.size());
  crypto_hash_sha256_update(&state, chars(data), data.size());
  crypto_hash_sha256_final(&state, hash_.data());
}

void NoiseHandshake::mix_key(std::span<const unsigned char> input) {
  auto keys = hkdf<2>(chaining_key_, input);
  chaining_key_ = keys[0];
  cipher_ = NoiseCipher(keys[1]);
  wipe(keys);
}

void NoiseHandshake::mix_key_and_hash(std::span<const unsigned char> input) {
  auto keys = hkdf<3>(chaining_key_, input);
  chaining_key_ = keys[0];
  mix_hash(std::as_bytes(std::span(keys[1])));
  cipher_ = NoiseCipher(keys[2]);
  wipe(keys);
}

// In a pattern with a psk, an ephemeral public key is mixed into the key too (section 9.2).
void NoiseHandshake::mix_public_key(const NoiseKey& key) {
  mix_hash(std::as_bytes(std::span(key)));
  mix_key(key);
}

void NoiseHandshake::make_key_pair() {
  if (fixed_) {
    secret_ = *fixed_;
  } else {
    randombytes_buf(secret_.data(), secret_.size());
  }
  crypto_scalarmult_base(public_.data(), secret_.data());
}

bool NoiseHandshake::mix_shared_secret() {
  NoiseKey shared;
  if (crypto_scalarmult(shared.data(), secret_.data(), remote_.data()) != 0) return false;
  mix_key(shared);
  sodium_memzero(shared.data(), shared.size());
  return true;
}

std::vector<std::byte> NoiseHandshake::write_message(std::span<const std::byte> payload) {
  DISTRUN_CHECK(my_turn_to_write(), "a handshake message is written out of turn");
  DISTRUN_CHECK(payload.size() <= kNoiseMaxMessage - kNoiseKeyBytes - kNoiseTagBytes, "a payload above 64 KiB");
  if (role_ == Role::kInitiator) make_key_pair();
  const auto key_bytes = std::as_bytes(std::span(public_));
  std::vector<std::byte> message(key_bytes.begin(), key_bytes.end());
  mix_public_key(public_);
  // The remote key was checked when it was read.
  if (role_ == Role::kResponder) DISTRUN_CHECK(mix_shared_secret(), "a degenerate key was accepted");
  const NoiseKey ad = hash_;
  cipher_.encrypt(std::as_bytes(std::span(ad)), payload, message);
  mix_hash(std::span(message).subspan(kNoiseKeyBytes));
  ++messages_;
  return message;
}

Result<std::vector<std::byte>> NoiseHandshake::read_message(std::span<const std::byte> message) {
  DISTRUN_CHECK(!failed_ && !finished() && !my_turn_to_write(), "a handshake message is read out of turn");
  failed_ = true;
  const Status refused(Errc::kProtocol, "the other side does not have the key of this job");
  if (message.size() < kNoiseKeyBytes + kNoiseTagBytes || message.size() > kNoiseMaxMessage) return refused;
  std::memcpy(remote_.data(), message.data(), kNoiseKeyBytes);
  if (role_ == Role::kInitiator && remote_ == public_) return refused;  // this side's own message, reflected
  mix_public_key(remote_);
  if (role_ == Role::kInitiator && !mix_shared_secret()) return refused;
  const auto sealed = message.subspan(kNoiseKeyBytes);
  const NoiseKey ad = hash_;
  std::vector<std::byte> payload;
  if (!cipher_.decrypt(std::as_bytes(std::span(ad)), sealed, payload)) return refused;
  mix_hash(sealed);
  // Done after the decryption, so that a stranger without the key costs only hashes and no scalar multiplication.
  if (role_ == Role::kResponder) {
    make_key_pair();
    // A key of low order makes the shared secret a constant. No honest peer sends one.
    NoiseKey unused;
    if (crypto_scalarmult(unused.data(), secret_.data(), remote_.data()) != 0) return refused;
    sodium_memzero(unused.data(), unused.size());
  }
  ++messages_;
  failed_ = false;
  return payload;
}

NoiseSession NoiseHandshake::split() {
  DISTRUN_CHECK(finished() && !failed_, "a session is taken from an unfinished handshake");
  auto keys = hkdf<2>(chaining_key_, {});
  const bool initiator = role_ == Role::kInitiator;
  NoiseSession session{.send = NoiseCipher(keys[initiator ? 0 : 1]), .receive = NoiseCipher(keys[initiator ? 1 : 0])};
  // The exported keys are a second HKDF of the chaining key. Its input is not empty, unlike that of the session's keys.
  std::array<unsigned char, kExportLabel.size() + kNoiseKeyBytes> context;
  std::ranges::copy(kExportLabel, context.begin());
  std::ranges::copy(hash_, context.begin() + kExportLabel.size());
  auto exported = hkdf<2>(chaining_key_, context);
  session.exported.send = exported[initiator ? 0 : 1];
  session.exported.receive = exported[initiator ? 1 : 0];
  wipe(exported);
  wipe(keys);
  return session;
}

}  // namespace distrun::net
