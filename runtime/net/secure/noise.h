// Noise_NNpsk0_25519_ChaChaPoly_SHA256 (The Noise Protocol Framework, revision 34), built on libsodium's primitives.
// Only this one pattern; no I/O, and no allocation except for the messages. Tests check it against the published
// cacophony vectors. Destructors wipe the keys.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace distrun::net {

inline constexpr std::size_t kNoiseKeyBytes = 32;
inline constexpr std::size_t kNoiseTagBytes = 16;
inline constexpr std::size_t kNoiseMaxMessage = 65535;

using NoiseKey = std::array<unsigned char, kNoiseKeyBytes>;

// One direction of an established session, or the cipher inside a handshake. The nonce counts up and never repeats.
class NoiseCipher {
 public:
  explicit NoiseCipher(const NoiseKey& key) : key_(key) {}
  NoiseCipher(const NoiseCipher&) = delete;
  NoiseCipher& operator=(const NoiseCipher&) = delete;
  NoiseCipher(NoiseCipher&&) = default;
  NoiseCipher& operator=(NoiseCipher&&) = default;
  ~NoiseCipher();

  // Appends plain.size() + kNoiseTagBytes bytes to `out`.
  void encrypt(std::span<const std::byte> ad, std::span<const std::byte> plain, std::vector<std::byte>& out);
  // Appends the plaintext to `out`. If the tag is wrong, returns false, and `out` and the nonce stay unchanged.
  [[nodiscard]] bool decrypt(std::span<const std::byte> ad, std::span<const std::byte> sealed,
                             std::vector<std::byte>& out);

 private:
  [[nodiscard]] std::array<unsigned char, 12> nonce() const;
  NoiseKey key_;
  std::uint64_t counter_ = 0;
};

// A second key for each direction, independent of the keys of the session's ciphers. Other protection of the connection
// derives its keys from these. They depend on the whole handshake.
struct ExportedKeys {
  ExportedKeys() = default;
  ExportedKeys(const ExportedKeys&) = default;
  ExportedKeys& operator=(const ExportedKeys&) = default;
  ~ExportedKeys();
  NoiseKey send{};
  NoiseKey receive{};
};

struct NoiseSession {
  NoiseCipher send;
  NoiseCipher receive;
  ExportedKeys exported{};
};

// The two messages: initiator write, responder read, responder write, initiator read. Then both sides call split().
// After a failed read the handshake is unusable.
class NoiseHandshake {
 public:
  enum class Role { kInitiator, kResponder };
  struct Options {
    Role role = Role::kInitiator;
    std::span<const unsigned char, kNoiseKeyBytes> psk;
    std::span<const std::byte> prologue;
    std::optional<NoiseKey> ephemeral;  // only for test vectors; random otherwise
  };

  explicit NoiseHandshake(const Options& options);
  NoiseHandshake(const NoiseHandshake&) = delete;
  NoiseHandshake& operator=(const NoiseHandshake&) = delete;
  ~NoiseHandshake();

  std::vector<std::byte> write_message(std::span<const std::byte> payload);
  // Returns the payload. kProtocol if the other side does not hold the key, or if a byte was changed on the way.
  Result<std::vector<std::byte>> read_message(std::span<const std::byte> message);

  [[nodiscard]] bool finished() const { return messages_ == 2; }
  [[nodiscard]] const NoiseKey& handshake_hash() const { return hash_; }
  NoiseSession split();

 private:
  [[nodiscard]] bool my_turn_to_write() const;
  void mix_hash(std::span<const std::byte> data);
  void mix_key(std::span<const unsigned char> input);
  void mix_key_and_hash(std::span<const unsigned char> input);
  void mix_public_key(const NoiseKey& key);
  void make_key_pair();
  [[nodiscard]] bool mix_shared_secret();  // false for a degenerate remote key

  Role role_;
  int messages_ = 0;
  bool failed_ = false;
  NoiseKey chaining_key_{};
  NoiseKey hash_{};
  NoiseCipher cipher_;
  std::optional<NoiseKey> fixed_;  // Options::ephemeral
  NoiseKey secret_{};              // this side's ephemeral key pair, created when it is needed
  NoiseKey public_{};
  NoiseKey remote_{};
};

}  // namespace distrun::net
