#include "runtime/net/secure/record_cipher.h"

#include <sodium.h>

namespace distrun::net {
namespace {

unsigned char* letters(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* letters(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

// Derives a key for `purpose` only. It reveals nothing about `key`.
NoiseKey derived(const NoiseKey& key, const std::string& purpose) {
  NoiseKey out;
  crypto_generichash(out.data(), out.size(), reinterpret_cast<const unsigned char*>(purpose.data()), purpose.size(),
                     key.data(), key.size());
  return out;
}

NoiseKey record_key(const NoiseKey& key, const RecordSuite& suite) {
  return derived(key, "distrun records: " + to_string(suite));
}

}  // namespace

struct RecordCipher::AesState {
  ~AesState() { sodium_memzero(&expanded, sizeof expanded); }
  crypto_aead_aes256gcm_state expanded;
};

std::string to_string(const RecordSuite& suite) {
  return std::string(suite.encrypts ? "encrypt" : "checksum") + (suite.aes ? " aes-256-gcm" : " chacha20-poly1305");
}

bool aes_available() { return sodium_init() >= 0 && crypto_aead_aes256gcm_is_available() != 0; }

RecordCipher::RecordCipher(RecordSuite suite, const NoiseKey& key, const RecordNonces& nonces)
    : suite_(suite), key_(key), nonces_(nonces) {
  DISTRUN_CHECK(sodium_init() >= 0, "libsodium cannot be initialised");
  DISTRUN_CHECK(!suite.aes || aes_available(), "AES-256-GCM was agreed on, and this processor does not have it");
  if (suite.aes) aes_ = std::make_unique<AesState>();
  set_key();
}

RecordCipher::~RecordCipher() { sodium_memzero(key_.data(), key_.size()); }

void RecordCipher::set_key() {
  if (aes_ != nullptr) crypto_aead_aes256gcm_beforenm(&aes_->expanded, key_.data());
}

// The nonce is four zero bytes, then the number of the record in little-endian order. False: there are no more.
bool RecordCipher::next(Nonce& nonce) {
  if (nonces_.next >= nonces_.end) return false;
  if (nonces_.next > 0 && nonces_.next % nonces_.per_key == 0) {
    key_ = derived(key_, "distrun records: next key");
    set_key();
  }
  nonce = {};
  for (std::size_t i = 0; i < 8; ++i) nonce[4 + i] = static_cast<unsigned char>(nonces_.next >> (8 * i));
  ++nonces_.next;
  return true;
}

// If records are not encrypted, their data is the additional data of a record without text.
bool RecordCipher::seal(std::span<const std::byte> plain, std::byte* out, RecordTag& tag) {
  Nonce nonce;
  if (!next(nonce)) return false;
  const unsigned char* text = suite_.encrypts ? letters(plain.data()) : nullptr;
  const unsigned char* data = suite_.encrypts ? nullptr : letters(plain.data());
  const std::size_t text_bytes = suite_.encrypts ? plain.size() : 0;
  const std::size_t data_bytes = suite_.encrypts ? 0 : plain.size();
  if (aes_ != nullptr) {
    crypto_aead_aes256gcm_encrypt_detached_afternm(letters(out), letters(tag.data()), nullptr, text, text_bytes, data,
                                                   data_bytes, nullptr, nonce.data(), &aes_->expanded);
  } else {
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(letters(out), letters(tag.data()), nullptr, text, text_bytes,
                                                       data, data_bytes, nullptr, nonce.data(), key_.data());
  }
  return true;
}

bool RecordCipher::open(std::span<std::byte> bytes, const RecordTag& tag) {
  Nonce nonce;
  if (!next(nonce)) return false;
  unsigned char* text = letters(bytes.data());
  const unsigned char* data = suite_.encrypts ? nullptr : text;
  const std::size_t text_bytes = suite_.encrypts ? bytes.size() : 0;
  const std::size_t data_bytes = suite_.encrypts ? 0 : bytes.size();
  if (aes_ != nullptr) {
    return crypto_aead_aes256gcm_decrypt_detached_afternm(text, nullptr, text, text_bytes, letters(tag.data()), data,
                                                          data_bytes, nonce.data(), &aes_->expanded) == 0;
  }
  return crypto_aead_chacha20poly1305_ietf_decrypt_detached(text, nullptr, text, text_bytes, letters(tag.data()), data,
                                                            data_bytes, nonce.data(), key_.data()) == 0;
}

RecordLayer::RecordLayer(RecordSuite suite, const ExportedKeys& keys)
    : send(suite, record_key(keys.send, suite)), receive(suite, record_key(keys.receive, suite)) {}

}  // namespace distrun::net
