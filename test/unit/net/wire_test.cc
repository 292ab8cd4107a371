#include "runtime/net/bytes/wire.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/types.h"

namespace distrun::net {
namespace {

std::vector<std::byte> one_of_everything() {
  WireWriter writer;
  writer.u8(0xab).u16(0xbeef).u32(0xdeadbeef).u64(0x0123456789abcdefULL).i32(-5).i64(-6).boolean(true).f64(-0.5);
  writer.string("tensor").i64s(std::vector<std::int64_t>{1, -2}).i32s(std::vector<int>{3, 4, 5});
  writer.list(std::vector<std::string>{"a", "bc"}, [](WireWriter& w, const std::string& text) { w.string(text); });
  return writer.take();
}

Status read_everything(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  bool same = reader.u8() == 0xab;
  same = reader.u16() == 0xbeef && same;
  same = reader.u32() == 0xdeadbeef && same;
  same = reader.u64() == 0x0123456789abcdefULL && same;
  same = reader.i32() == -5 && same;
  same = reader.i64() == -6 && same;
  same = reader.boolean() && same;
  same = reader.f64() == -0.5 && same;
  same = reader.string(16) == "tensor" && same;
  same = reader.i64s(4) == std::vector<std::int64_t>{1, -2} && same;
  same = reader.i32s(4) == std::vector<int>{3, 4, 5} && same;
  same = reader.list<std::string>(4, 4, [](WireReader& r) { return r.string(2); }) ==
             std::vector<std::string>{"a", "bc"} &&
         same;
  DISTRUN_RETURN_IF_ERROR(reader.finish("the test message"));
  return same ? Status{} : Status{Errc::kInternal, "values differ"};
}

TEST_CASE("what is written is read back", "[wire]") { CHECK(read_everything(one_of_everything()).ok()); }

TEST_CASE("numbers are little-endian on every machine", "[wire]") {
  WireWriter writer;
  writer.u32(0x01020304);
  CHECK(writer.take() == std::vector<std::byte>{std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}});
}

TEST_CASE("doubles travel as their bits", "[wire]") {
  WireWriter writer;
  writer.f64(std::numeric_limits<double>::infinity()).f64(std::nan(""));
  WireReader reader(writer.view());
  CHECK(std::isinf(reader.f64()));
  CHECK(std::isnan(reader.f64()));
  CHECK(reader.finish("doubles").ok());
}

TEST_CASE("a message cut at any byte is refused", "[wire]") {
  const auto whole = one_of_everything();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Status status = read_everything(std::span(whole).first(size));
    REQUIRE(status.code() == Errc::kProtocol);
    CHECK(status.message() ==
          "the test message is malformed (if builds of distrun differ, install one build on all hosts): it ends too "
          "early");
  }
}

TEST_CASE("trailing bytes are refused", "[wire]") {
  auto bytes = one_of_everything();
  bytes.push_back(std::byte{0});
  CHECK(read_everything(bytes).message().ends_with("1 bytes too many at its end"));
}

TEST_CASE("lengths are checked before anything is allocated", "[wire]") {
  WireWriter writer;
  writer.u32(0xffffffff);
  const auto huge = writer.take();
  SECTION("string above its limit") {
    WireReader reader(huge);
    CHECK(reader.string(100).empty());
    CHECK(reader.finish("x").message().ends_with("a value has 4294967295 bytes, and at most 100 are allowed"));
  }
  SECTION("string within its limit but not there") {
    WireReader reader(huge);
    CHECK(reader.string(std::numeric_limits<std::size_t>::max()).empty());
    CHECK(reader.finish("x").message().ends_with("it ends too early"));
  }
  SECTION("list above its limit") {
    WireReader reader(huge);
    CHECK(reader.i64s(100).empty());
    CHECK(reader.finish("x").message().ends_with("a list has 4294967295 items, and at most 100 are allowed"));
  }
  SECTION("list that the rest cannot hold") {
    WireReader reader(huge);
    CHECK(reader.i32s(std::numeric_limits<std::size_t>::max()).empty());
    CHECK(reader.finish("x").message().ends_with("it ends too early"));
  }
}

TEST_CASE("truth values and enumerations are checked", "[wire]") {
  enum class Two : std::uint8_t { kA, kB };
  const std::vector<std::byte> two{std::byte{2}};
  WireReader truth(two);
  CHECK_FALSE(truth.boolean());
  CHECK_FALSE(truth.ok());
  WireReader enumeration(two);
  CHECK(enumeration.enumerator<Two>(2) == Two::kA);
  CHECK(enumeration.finish("x").message().ends_with("out of range"));
}

TEST_CASE("after a fault every read returns nothing and the first fault is reported", "[wire]") {
  const std::vector<std::byte> bytes(8, std::byte{2});
  WireReader reader(bytes);
  CHECK_FALSE(reader.boolean());
  CHECK(reader.u32() == 0);
  CHECK(reader.string(4).empty());
  CHECK(reader.remaining() == 0);
  CHECK(reader.finish("x").message().ends_with("neither 0 nor 1"));
}

struct Item {
  std::uint16_t number = 0;
  std::string text;
  friend bool operator==(const Item&, const Item&) = default;
};

struct Everything {
  bool truth = false;
  double real = 0;
  DeviceType device = DeviceType::kCpu;
  std::vector<std::byte> blob;
  std::vector<std::uint32_t> numbers;
  std::vector<std::string> texts;
  std::vector<Item> items;
  Item inner;
  friend bool operator==(const Everything&, const Everything&) = default;
};

template <class V>
void fields(V& v, Ref<V, Item> item) {
  v(item.number).text(item.text, 4).check(item.text != "bad", "a bad text");
}

template <class V>
void fields(V& v, Ref<V, Everything> all) {
  v(all.truth, all.real).one_of(all.device, 2).blob(all.blob, 3).numbers(all.numbers, 2).texts(all.texts, 2, 3);
  v.list(all.items, 2, [](auto& w, auto& item) { fields(w, item); }).nested(all.inner, 100, "the inner item");
}

TEST_CASE("one list of fields writes and reads a struct", "[wire]") {
  const Everything all{.truth = true,
                       .real = 2.5,
                       .device = DeviceType::kCuda,
                       .blob = {std::byte{1}},
                       .numbers = {7, 8},
                       .texts = {"a", "bcd"},
                       .items = {{1, "x"}, {2, "yz"}},
                       .inner = {.number = 3, .text = "in"}};
  const auto bytes = encoded(all).take();
  const auto again = decoded<Everything>(bytes, "all");
  REQUIRE(again.ok());
  CHECK(*again == all);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decoded<Everything>(std::span(bytes).first(size), "all").ok());
  }
  CHECK(as_string(encoded(all)).size() == bytes.size());
}

TEST_CASE("the limits of fields are the reader's", "[wire]") {
  const auto refusal = [](const Everything& all) { return decoded<Everything>(encoded(all).view(), "all").status(); };
  CHECK(refusal({.blob = std::vector<std::byte>(4)}).message().ends_with("4 bytes, and at most 3 are allowed"));
  CHECK(refusal({.numbers = {1, 2, 3}}).message().ends_with("3 items, and at most 2 are allowed"));
  CHECK(refusal({.texts = {"long"}}).message().ends_with("4 bytes, and at most 3 are allowed"));
  CHECK(refusal({.items = {{1, "bad"}}}).message().ends_with("a bad text"));
  CHECK(refusal({.inner = {.text = "bad"}}).message().starts_with("the inner item is malformed"));
}

TEST_CASE("a list of structs is refused before memory is reserved for it", "[wire]") {
  // Each item has at least 6 bytes: two for the number, and four for the length of the text.
  WireWriter writer;
  writer.u32(2).raw(std::vector<std::byte>(11));
  WireReader reader(writer.view());
  std::vector<Item> items;
  reader.list(items, 10, [](auto& w, auto& item) { fields(w, item); });
  CHECK(items.capacity() == 0);
  CHECK(reader.finish("items").message().ends_with("it ends too early"));
}

TEST_CASE("a text that is cut keeps whole characters", "[wire]") {
  CHECK(as_string(WireWriter().cut_text("abcdef", 3)) == as_string(WireWriter().string("abc")));
  CHECK(as_string(WireWriter().cut_text("a\u00e9z", 2)) == as_string(WireWriter().string("a")));
  CHECK(as_string(WireWriter().cut_text("a\u00e9z", 3)) == as_string(WireWriter().string("a\u00e9")));
}

TEST_CASE("random bytes never do harm", "[wire]") {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> bytes(random() % 100);
    for (auto& b : bytes) b = static_cast<std::byte>(random());
    CHECK_FALSE(read_everything(bytes).ok());
  }
}

}  // namespace
}  // namespace distrun::net
