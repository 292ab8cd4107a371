// Seals and opens the records of one direction of a data connection (docs/internals/wire.md). It uses a key and a nonce
// that counts. So a record does not open if it was changed, repeated, left out, moved or sent back. Only libsodium's
// ciphers, no I/O. Destructors wipe the keys.
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

// The algorithms of the records. Both ends use the same.
struct RecordSuite {
  bool encrypts = true;  // false: records only have tags, and their data is sent in the clear
  bool aes = false;      // AES-256-GCM, if every member's processor has it; otherwise ChaCha20-Poly1305
  friend bool operator==(const RecordSuite&, const RecordSuite&) = default;
};
std::string to_string(const RecordSuite& suite);  // for instance "encrypt aes-256-gcm"

bool aes_available();

inline constexpr std::size_t kRecordTagBytes = 16;
using RecordTag = std::array<std::byte, kRecordTagBytes>;

// The numbers of records. Only tests use other values than these.
struct RecordNonces {
  std::uint64_t next = 0;
  std::uint64_t end = std::numeric_limits<std::uint64_t>::max();  // no record has this number or a later one
  // After this many records the key is replaced by one derived from it. So fewer than 2^36 blocks of AES use one key.
  std::uint64_t per_key = std::uint64_t{1} << 20;
};

class RecordCipher {
 public:
  RecordCipher(RecordSuite suite, const NoiseKey& key, const RecordNonces& nonces = {});
  ~RecordCipher();
  RecordCipher(const RecordCipher&) = delete;
  RecordCipher& operator=(const RecordCipher&) = delete;

  [[nodiscard]] bool encrypts() const { return suite_.encrypts; }
  // Seals the next record. `out` gets plain.size() bytes and may be the memory of `plain`. If records are not
  // encrypted, `out` is not written. False: the nonces are used up, and nothing was written.
  [[nodiscard]] bool seal(std::span<const std::byte> plain, std::byte* out, RecordTag& tag);
  // Opens the next record in place. False: it differs from what the other side sealed, and the connection is unusable.
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
