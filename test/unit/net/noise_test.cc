#include "runtime/net/secure/noise.h"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/net/bytes/wire.h"

namespace distrun::net {
namespace {

using Bytes = std::vector<std::byte>;

Bytes from_hex(std::string_view hex) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

NoiseKey key_from_hex(std::string_view hex) {
  NoiseKey key;
  const Bytes bytes = from_hex(hex);
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = std::to_integer<unsigned char>(bytes.at(i));
  return key;
}

// The vector "Noise_NNpsk0_25519_ChaChaPoly_SHA256" of cacophony's vectors/cacophony.txt (Unlicense), also in snow's
// tests/vectors/cacophony.txt.
constexpr std::string_view kPrologue = "4a6f686e2047616c74";
constexpr std::string_view kPsk = "54686973206973206d7920417573747269616e20706572737065637469766521";
constexpr std::string_view kInitiatorEphemeral = "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a";
constexpr std::string_view kResponderEphemeral = "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b";
constexpr std::string_view kHash = "f4d03dc34495c95729ea6de9e1b59004b59733102488b3e24bc441e0be208eaf";
struct VectorMessage {
  std::string_view payload;
  std::string_view ciphertext;
};
constexpr VectorMessage kMessages[] = {
    {"4c756477696720766f6e204d69736573",
     "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944"
     "79b962b8aff8485742ac32f905ba45369e2465fb59e138a93d67a0d1266b6a54"},
    {"4d757272617920526f746862617264",
     "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
     "d6062704d5a9c422a8e834423f8c1feada7e8d0d910a1a2cd030fb584221e3"},
    {"462e20412e20486179656b", "e632c3763d7669067383433197a3baddf146e9e70ad4b4e9e59e0f"},
    {"4361726c204d656e676572", "64c6bee32ea91c8474bb4c21d7a700109ad45af77b29764ba5eb1e"},
    {"4a65616e2d426170746973746520536179", "e2fa0bed0603b62d3ccac2ecabbf3fe33f3e86514909b323361626266cb2471cc8"},
    {"457567656e2042f6686d20766f6e2042617765726b",
     "0c01dc9cec1fe4ddd692e8dd32188aa351088dc91183639a53b57aa4692b5ebdef8b8ca111"},
};

struct Pair {
  NoiseKey psk = key_from_hex(kPsk);
  NoiseKey other_psk = psk;
  Bytes prologue = from_hex(kPrologue);
  Bytes other_prologue = prologue;
  std::unique_ptr<NoiseHandshake> initiator;
  std::unique_ptr<NoiseHandshake> responder;

  void make(bool fixed) {
    using Role = NoiseHandshake::Role;
    NoiseHandshake::Options a{.role = Role::kInitiator, .psk = psk, .prologue = prologue};
    NoiseHandshake::Options b{.role = Role::kResponder, .psk = other_psk, .prologue = other_prologue};
    if (fixed) {
      a.ephemeral = key_from_hex(kInitiatorEphemeral);
      b.ephemeral = key_from_hex(kResponderEphemeral);
    }
    initiator = std::make_unique<NoiseHandshake>(a);
    responder = std::make_unique<NoiseHandshake>(b);
  }
};

TEST_CASE("the published vector of NNpsk0_25519_ChaChaPoly_SHA256 holds byte for byte", "[noise]") {
  Pair pair;
  pair.make(true);
  const Bytes first = pair.initiator->write_message(from_hex(kMessages[0].payload));
  CHECK(first == from_hex(kMessages[0].ciphertext));
  CHECK(*pair.responder->read_message(first) == from_hex(kMessages[0].payload));
  const Bytes second = pair.responder->write_message(from_hex(kMessages[1].payload));
  CHECK(second == from_hex(kMessages[1].ciphertext));
  CHECK(*pair.initiator->read_message(second) == from_hex(kMessages[1].payload));
  CHECK(pair.initiator->handshake_hash() == key_from_hex(kHash));
  CHECK(pair.responder->handshake_hash() == key_from_hex(kHash));

  NoiseSession a = pair.initiator->split();
  NoiseSession b = pair.responder->split();
  for (std::size_t i = 2; i < std::size(kMessages); ++i) {
    NoiseSession& from = i % 2 == 0 ? a : b;
    NoiseSession& to = i % 2 == 0 ? b : a;
    Bytes sealed;
    Bytes plain;
    from.send.encrypt({}, from_hex(kMessages[i].payload), sealed);
    CHECK(sealed == from_hex(kMessages[i].ciphertext));
    REQUIRE(to.receive.decrypt({}, sealed, plain));
    CHECK(plain == from_hex(kMessages[i].payload));
  }
}

TEST_CASE("every changed bit of both messages is noticed", "[noise]") {
  for (const int message : {0, 1}) {
    const std::size_t bits = 8 * from_hex(kMessages[message].ciphertext).size();
    for (std::size_t bit = 0; bit < bits; ++bit) {
      Pair pair;
      pair.make(true);
      Bytes bytes = pair.initiator->write_message(from_hex(kMessages[0].payload));
      NoiseHandshake* reader = pair.responder.get();
      if (message == 1) {
        REQUIRE(pair.responder->read_message(bytes).ok());
        bytes = pair.responder->write_message(from_hex(kMessages[1].payload));
        reader = pair.initiator.get();
      }
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      REQUIRE(reader->read_message(bytes).status().code() == Errc::kProtocol);
    }
  }
}

TEST_CASE("another key or prologue does not pass", "[noise]") {
  Pair pair;
  SECTION("key") { pair.other_psk[31] ^= 1; }
  SECTION("prologue") { pair.other_prologue.push_back(std::byte{0}); }
  pair.make(false);
  CHECK(pair.responder->read_message(pair.initiator->write_message({})).status().code() == Errc::kProtocol);
}

TEST_CASE("a reflected message does not pass", "[noise]") {
  Pair pair;
  pair.make(false);
  const Bytes first = pair.initiator->write_message({});
  CHECK(pair.initiator->read_message(first).status().code() == Errc::kProtocol);
}

TEST_CASE("a message of zeros, whose key is of low order, is refused", "[noise]") {
  Pair pair;
  pair.make(false);
  CHECK(pair.responder->read_message(Bytes(64)).status().code() == Errc::kProtocol);
}

TEST_CASE("messages of every wrong length are refused", "[noise]") {
  const Bytes good = from_hex(kMessages[0].ciphertext);
  for (std::size_t size = 0; size < good.size(); ++size) {
    Pair pair;
    pair.make(true);
    REQUIRE_FALSE(pair.responder->read_message(std::span(good).first(size)).ok());
  }
  Pair pair;
  pair.make(true);
  CHECK_FALSE(pair.responder->read_message(Bytes(kNoiseMaxMessage + 1)).ok());
}

TEST_CASE("a replayed first message gives the replayer no session", "[noise]") {
  Pair old;
  old.make(false);
  const Bytes recorded = old.initiator->write_message({});
  Pair fresh;
  fresh.make(false);
  REQUIRE(fresh.responder->read_message(recorded).ok());  // psk0 proves the key, not that the sender lives
  const Bytes answer = fresh.responder->write_message({});
  CHECK_FALSE(fresh.initiator->finished());
  // Only the sender's ephemeral secret turns the answer into keys. A guess at the next message therefore fails.
  NoiseSession session = fresh.responder->split();
  Bytes plain;
  CHECK_FALSE(session.receive.decrypt({}, Bytes(17), plain));
}

TEST_CASE("a repeated or reordered transport message is refused and later ones still pass", "[noise]") {
  Pair pair;
  pair.make(false);
  REQUIRE(pair.responder->read_message(pair.initiator->write_message({})).ok());
  REQUIRE(pair.initiator->read_message(pair.responder->write_message({})).ok());
  NoiseSession a = pair.initiator->split();
  NoiseSession b = pair.responder->split();
  Bytes first;
  Bytes second;
  Bytes plain;
  a.send.encrypt({}, as_bytes("one"), first);
  a.send.encrypt({}, as_bytes("two"), second);
  CHECK_FALSE(b.receive.decrypt({}, second, plain));
  CHECK(b.receive.decrypt({}, first, plain));
  CHECK_FALSE(b.receive.decrypt({}, first, plain));
  CHECK(plain.size() == 3);
  CHECK(b.receive.decrypt({}, second, plain));
}

TEST_CASE("steps out of turn are a broken contract", "[noise]") {
  Pair pair;
  pair.make(false);
  CHECK_THROWS(pair.responder->write_message({}));
  CHECK_THROWS(pair.initiator->split());
  CHECK_THROWS(pair.initiator->read_message({}));
}

}  // namespace
}  // namespace distrun::net
