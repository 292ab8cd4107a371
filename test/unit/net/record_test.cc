// The record layer of tensor connections: the right records open, and no others do.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/net/secure/record_cipher.h"
#include "runtime/net/secure/record_stream.h"

namespace distrun::net {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kHead = 32;
constexpr std::size_t kSealedHead = kHead + kRecordTagBytes;

NoiseKey key_of(unsigned char first) {
  NoiseKey key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<unsigned char>(first + i);
  return key;
}

std::vector<RecordSuite> suites() {
  std::vector<RecordSuite> all = {{.encrypts = true, .aes = false}, {.encrypts = false, .aes = false}};
  if (aes_available()) all.insert(all.end(), {{.encrypts = true, .aes = true}, {.encrypts = false, .aes = true}});
  return all;
}

Bytes pattern(std::size_t size, unsigned seed = 1) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + seed);
  return bytes;
}

struct Sealed {
  Bytes bytes;
  RecordTag tag{};
};

Sealed seal(RecordCipher& cipher, const Bytes& plain) {
  Sealed sealed{.bytes = plain};
  REQUIRE(cipher.seal(plain, sealed.bytes.data(), sealed.tag));
  return sealed;
}

bool opens(RecordCipher& cipher, Sealed sealed, const Bytes& plain) {
  return cipher.open(sealed.bytes, sealed.tag) && sealed.bytes == plain;
}

// The bytes that a writer sends for a head and a body of these pieces.
Bytes on_wire(RecordWriter& writer, const Bytes& head, const std::vector<Bytes>& body) {
  Pieces pieces;
  pieces.add(head.data(), head.size());
  for (const Bytes& piece : body) pieces.add(piece.data(), piece.size());
  REQUIRE(writer.seal(head, pieces));
  Bytes wire;
  pieces.for_each([&](const std::byte* data, std::size_t size) { wire.insert(wire.end(), data, data + size); });
  return wire;
}

// Reads one message from `wire`, `at_once` bytes at a time. Returns false if it does not open. `taken` is how many
// bytes it used.
bool reads(RecordReader& reader, const Bytes& wire, std::vector<Bytes>& body, std::size_t at_once, std::size_t& taken) {
  Pieces place;
  for (Bytes& piece : body) place.add(piece.data(), piece.size());
  reader.place(place);
  while (taken < wire.size() && !reader.has_body()) {
    Pieces into;
    reader.add_missing(into);
    std::size_t part = std::min({at_once, into.size(), wire.size() - taken});
    const std::size_t got = part;
    into.for_each([&](std::byte* data, std::size_t size) {
      const std::size_t bytes = std::min(part, size);
      if (bytes > 0) std::memcpy(data, wire.data() + taken, bytes);
      taken += bytes;
      part -= bytes;
    });
    if (!reader.take(got)) return false;
  }
  return reader.has_body() && reader.open_body();
}

bool reads(RecordReader& reader, const Bytes& wire, std::vector<Bytes>& body) {
  std::size_t taken = 0;
  return reads(reader, wire, body, wire.size(), taken);
}

}  // namespace

TEST_CASE("records: what one side seals the other opens, in order", "[records]") {
  for (const RecordSuite& suite : suites()) {
    CAPTURE(to_string(suite));
    RecordCipher here(suite, key_of(1));
    RecordCipher there(suite, key_of(1));
    for (const std::size_t size : {0U, 1U, 15U, 16U, 17U, 4096U, 131072U}) {
      const Bytes plain = pattern(size);
      const Sealed sealed = seal(here, plain);
      if (size >= 16) CHECK((sealed.bytes == plain) == !suite.encrypts);
      CHECK(opens(there, sealed, plain));
    }
  }
}

TEST_CASE("records: one bit that is changed anywhere does not open", "[records]") {
  const Bytes plain = pattern(100);
  for (const RecordSuite& suite : suites()) {
    for (std::size_t bit = 0; bit < 8 * (plain.size() + kRecordTagBytes); ++bit) {
      CAPTURE(to_string(suite), bit);
      RecordCipher here(suite, key_of(1));
      RecordCipher there(suite, key_of(1));
      Sealed sealed = seal(here, plain);
      const std::size_t at = bit / 8;
      std::byte& byte = at < plain.size() ? sealed.bytes[at] : sealed.tag[at - plain.size()];
      byte ^= static_cast<std::byte>(1U << bit % 8);
      CHECK_FALSE(opens(there, sealed, plain));
    }
  }
}

TEST_CASE("records: repeated, left out, exchanged, reflected and cut ones do not open", "[records]") {
  for (const RecordSuite& suite : suites()) {
    CAPTURE(to_string(suite));
    const Bytes plain = pattern(64);
    const auto fresh = [&] { return std::make_unique<RecordCipher>(suite, key_of(1)); };
    auto here = fresh();
    const Sealed first = seal(*here, plain);
    const Sealed second = seal(*here, plain);
    CHECK(first.tag != second.tag);
    if (suite.encrypts) CHECK(first.bytes != second.bytes);

    auto repeated = fresh();
    CHECK(opens(*repeated, first, plain));
    CHECK_FALSE(opens(*repeated, first, plain));
    CHECK_FALSE(opens(*fresh(), second, plain));  // the first record was left out, or comes later
    Sealed cut = first;
    cut.bytes.pop_back();
    CHECK_FALSE(opens(*fresh(), cut, plain));

    // Each direction has its own key, so a record that is sent back does not open.
    ExportedKeys keys;
    keys.send = key_of(10);
    keys.receive = key_of(90);
    RecordLayer mine(suite, keys);
    std::swap(keys.send, keys.receive);
    RecordLayer theirs(suite, keys);
    const Sealed sent = seal(mine.send, plain);
    RecordLayer again(suite, keys);
    CHECK(opens(theirs.receive, sent, plain));
    std::swap(keys.send, keys.receive);
    RecordLayer own(suite, keys);
    CHECK_FALSE(opens(own.receive, sent, plain));
  }
}

TEST_CASE("records: a key of one suite or purpose opens nothing of another", "[records]") {
  const Bytes plain = pattern(64);
  ExportedKeys keys;
  keys.send = keys.receive = key_of(3);
  for (const RecordSuite& suite : suites()) {
    RecordLayer sender(suite, keys);
    const Sealed sealed = seal(sender.send, plain);
    RecordCipher raw(suite, keys.send);  // the exported key itself is not the key of records
    CHECK_FALSE(opens(raw, sealed, plain));
    for (const RecordSuite& other : suites()) {
      CAPTURE(to_string(suite), to_string(other));
      RecordLayer receiver(other, keys);
      CHECK(opens(receiver.receive, sealed, plain) == (suite == other));
    }
  }
}

TEST_CASE("records: the nonces end before they repeat, and a key is replaced in time", "[records]") {
  const Bytes plain = pattern(64);
  for (const RecordSuite& suite : suites()) {
    CAPTURE(to_string(suite));
    const RecordNonces nonces{.next = 0, .end = 7, .per_key = 3};
    RecordCipher here(suite, key_of(1), nonces);
    RecordCipher there(suite, key_of(1), nonces);
    RecordCipher one_key(suite, key_of(1));
    for (int i = 0; i < 7; ++i) {
      const Sealed sealed = seal(here, plain);
      CHECK(opens(there, sealed, plain));
      CHECK(opens(one_key, sealed, plain) == (i < 3));
    }
    Sealed none{.bytes = plain};
    CHECK_FALSE(here.seal(plain, none.bytes.data(), none.tag));
    CHECK(none.bytes == plain);
    CHECK(none.tag == RecordTag{});
    CHECK_FALSE(there.open(none.bytes, none.tag));

    // The end of the counter's range.
    const RecordNonces last{.next = std::numeric_limits<std::uint64_t>::max() - 1};
    RecordCipher old(suite, key_of(1), last);
    CHECK(old.seal(plain, none.bytes.data(), none.tag));
    CHECK_FALSE(old.seal(plain, none.bytes.data(), none.tag));
  }
}

TEST_CASE("record stream: messages arrive whole, however they are cut on the way and in memory", "[records]") {
  for (const RecordSuite& suite : suites()) {
    RecordCipher here(suite, key_of(1));
    RecordCipher there(suite, key_of(1));
    RecordWriter writer(here, kHead);
    RecordReader reader(there, kHead);
    for (const std::size_t at_once : {1U, 7U, 48U, 1000U, 100000U}) {
      for (const auto& sizes : std::vector<std::vector<std::size_t>>{{}, {1}, {5000}, {100, 1, 3000}}) {
        CAPTURE(to_string(suite), at_once, sizes.size());
        const Bytes head = pattern(kHead, static_cast<unsigned>(at_once));
        std::vector<Bytes> sent;
        std::vector<Bytes> got;
        for (const std::size_t size : sizes) {
          sent.push_back(pattern(size, static_cast<unsigned>(size)));
          got.emplace_back(size);
        }
        const Bytes wire = on_wire(writer, head, sent);
        std::size_t taken = 0;
        REQUIRE(reads(reader, wire, got, at_once, taken));
        CHECK(taken == wire.size());
        CHECK(std::ranges::equal(reader.head(), head));
        CHECK(got == sent);
        reader.next();
        CHECK(reader.at_boundary());
      }
    }
  }
}

TEST_CASE("record stream: a byte that is changed, left out or put in does not open", "[records]") {
  const Bytes head = pattern(kHead);
  for (const RecordSuite& suite : suites()) {
    for (const bool gathered : {false, true}) {
      const std::vector<Bytes> body =
          gathered ? std::vector<Bytes>{pattern(40), pattern(60)} : std::vector<Bytes>{pattern(100)};
      RecordCipher sealing(suite, key_of(1));
      RecordWriter writer(sealing, kHead);
      Bytes wire = on_wire(writer, head, body);
      const Bytes next = on_wire(writer, head, body);
      wire.insert(wire.end(), next.begin(), next.end());
      for (std::size_t at = 0; at < wire.size() / 2; ++at) {
        for (const int how : {0, 1, 2}) {
          CAPTURE(to_string(suite), gathered, at, how);
          Bytes changed = wire;
          const auto place = changed.begin() + static_cast<std::ptrdiff_t>(at);
          if (how == 0) *place ^= std::byte{0x10};
          if (how == 1) changed.erase(place);
          if (how == 2) changed.insert(place, std::byte{0x5a});
          RecordCipher opening(suite, key_of(1));
          RecordReader reader(opening, kHead);
          std::vector<Bytes> got = body;
          if (reads(reader, changed, got)) {
            // The byte that was inserted or removed may equal its neighbour. In that case the next message does not
            // open.
            reader.next();
            changed.erase(changed.begin(), changed.begin() + static_cast<std::ptrdiff_t>(wire.size() / 2));
            CHECK_FALSE(reads(reader, changed, got));
          }
        }
      }
    }
  }
}

TEST_CASE("record stream: a head is believed only once it is whole", "[records]") {
  const RecordSuite suite{.encrypts = true, .aes = false};
  RecordCipher here(suite, key_of(1));
  RecordCipher there(suite, key_of(1));
  RecordWriter writer(here, kHead);
  const Bytes wire = on_wire(writer, pattern(kHead), {});
  CHECK(wire.size() == kSealedHead);
  RecordReader reader(there, kHead);
  for (std::size_t i = 0; i < wire.size(); ++i) {
    CHECK_FALSE(reader.has_head());
    CHECK(reader.at_boundary() == (i == 0));
    Pieces into;
    reader.add_missing(into);
    CHECK(into.size() == wire.size() - i);
    *static_cast<std::byte*>(into.data()->iov_base) = wire[i];
    REQUIRE(reader.take(1));
  }
  CHECK(reader.has_head());
}

}  // namespace distrun::net
