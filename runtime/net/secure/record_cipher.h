// Seals and opens the records of one direction of a data connection (docs/wire.md): a key and a nonce that counts, so
// that a record that was changed, repeated, left out, put elsewhere or sent back does not open. libsodium's ciphers
// only, no I/O. Keys are wiped when their owner goes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "runtime/net/secure/noise.h"

namespace distrun::net {

// What records are made with: the same at both ends.
struct RecordSuite {
  bool encrypts = true;  // else records have tags alone, and what they carry travels in the clear
  bool aes = false;      // AES-256-GCM, where every member's processor has it; else ChaCha20-Poly1305
  friend bool operator==(const RecordSuite&, const RecordSuite&) = default;
};
std::string to_string(const RecordSuite& suite);  // "encrypt aes-256-gcm"

bool aes_available();

inline constexpr std::size_t kRecordTagBytes = 16;
using RecordTag = std::array<std::byte, kRecordTagBytes>;

// How far a key goes: other numbers than these are for tests.
struct RecordNonces {
  std::uint64_t next = 0;
  std::uint64_t end = std::numeric_limits<std::uint64_t>::max();  // no record has this number, nor any later one
  // Then the key is replaced by one that is made from it: fewer than 2^36 blocks of AES under any key.
  std::uint64_t per_key = std::uint64_t{1} << 20;
};

class RecordCipher {
 public:
  RecordCipher(RecordSuite suite, const NoiseKey& key, const RecordNonces& nonces = {});
  ~RecordCipher();
  RecordCipher(const RecordCipher&) = delete;
  RecordCipher& operator=(const RecordCipher&) = delete;

  [[nodiscard]] bool encrypts() const { return suite_.encrypts; }
  // The next record: `out` gets plain.size() bytes (`out` may be where `plain` lies), or is not touched where records
  // are not encrypted. False: the nonces are used up, and nothing was written.
  [[nodiscard]] bool seal(std::span<const std::byte> plain, std::byte* out, RecordTag& tag);
  // The next record, in place. False: it is not what the other side sealed, and the connection is of no use any more.
  [[nodiscard]] bool open(std::span<std::byte> bytes, const RecordTag& tag);

 private:
  struct AesState;
  using Nonce = std::array<unsigned char, 12>;

  bool next(Nonce& nonce);
  void set_key();

  const RecordSuite suite_;
  NoiseKey key_;
  std::unique_ptr<AesState> aes_;  // null without AES
  RecordNonces nonces_;
};

// Both directions of a data connection.
struct RecordLayer {
  RecordLayer(RecordSuite suite, const ExportedKeys& keys);
  RecordCipher send;
  RecordCipher receive;
};

}  // namespace distrun::net
