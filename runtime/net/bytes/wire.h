// Little-endian encoding of small messages, with limits on every length that is read. These two classes write and read
// all messages between distrun processes, so lengths are checked in one place (fuzzed: test/fuzz/wire.cc). A reader
// never throws and never reads past its bytes. After the first fault all further reads return zeros, and finish()
// reports the fault. A reader allocates memory only after it has checked that the bytes for it are present.
//
// A struct that is sent has one list of its fields, next to its encoding. The list serves writing and reading:
//   template <class V>
//   void fields(V& v, net::Ref<V, Pid> m) { v(m.rank, m.pid).text(m.host, kMaxHost); }
// The list is a template in the namespace of the struct, so that encoded() and decoded() find it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace distrun::net {

// The parameter type of a struct in fields(): a const reference if V is a writer.
template <class V, class T>
using Ref = std::conditional_t<V::kReads, T&, const T&>;

class WireWriter {
 public:
  static constexpr bool kReads = false;

  WireWriter& u8(std::uint8_t value) { return number(value, 1); }
  WireWriter& u16(std::uint16_t value) { return number(value, 2); }
  WireWriter& u32(std::uint32_t value) { return number(value, 4); }
  WireWriter& u64(std::uint64_t value) { return number(value, 8); }
  WireWriter& i32(std::int32_t value) { return u32(static_cast<std::uint32_t>(value)); }
  WireWriter& i64(std::int64_t value) { return u64(static_cast<std::uint64_t>(value)); }
  WireWriter& boolean(bool value) { return u8(value ? 1 : 0); }
  WireWriter& f64(double value);                         // IEEE 754 bits
  WireWriter& bytes(std::span<const std::byte> value);   // u32 length, then the bytes
  WireWriter& string(std::string_view value);            // the same
  WireWriter& raw(std::span<const std::byte> value);     // the bytes without a length
  WireWriter& i64s(std::span<const std::int64_t> list);  // u32 count, then the values (shapes, splits)
  WireWriter& i32s(std::span<const int> list);           // u32 count, then the values (ranks)
  // A u32 count, then write(writer, item) for each item.
  template <class List, class Write>
  WireWriter& list(const List& items, Write write) {
    u32(static_cast<std::uint32_t>(items.size()));
    for (const auto& item : items) write(*this, item);
    return *this;
  }

  // For fields(): the reader has the same calls. The writer ignores the limits and checks; the reader applies them.
  template <class... T>
  WireWriter& operator()(const T&... numbers) {
    (one(numbers), ...);
    return *this;
  }
  template <class Enum>
  WireWriter& one_of(Enum value, int /*count*/) {
    return u8(static_cast<std::uint8_t>(value));
  }
  WireWriter& text(std::string_view value, std::size_t /*limit*/) { return string(value); }
  WireWriter& cut_text(std::string_view value, std::size_t limit);  // cuts at the limit, never inside a character
  WireWriter& blob(std::span<const std::byte> value, std::size_t /*limit*/) { return bytes(value); }
  WireWriter& texts(const std::vector<std::string>& items, std::size_t /*limit*/, std::size_t /*longest*/) {
    return list(items, [](WireWriter& writer, const std::string& item) { writer.string(item); });
  }
  template <class Numbers>
  WireWriter& numbers(const Numbers& items, std::size_t /*limit*/) {
    return list(items, [](WireWriter& writer, const auto& item) { writer(item); });
  }
  template <class List, class Each>
  WireWriter& list(const List& items, std::size_t /*limit*/, Each each, std::size_t /*min_item_bytes*/ = 0) {
    return list(items, each);
  }
  template <class T>
  WireWriter& nested(const T& value, std::size_t /*limit*/, std::string_view /*name*/) {
    WireWriter inner;
    fields(inner, value);
    return bytes(inner.view());
  }
  WireWriter& check(bool /*holds*/, std::string_view /*fault*/) { return *this; }

  [[nodiscard]] std::span<const std::byte> view() const { return bytes_; }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  template <class T>
  void one(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      f64(value);
    } else {
      number(static_cast<std::uint64_t>(value), sizeof(T));
    }
  }
  WireWriter& number(std::uint64_t value, int width);
  std::vector<std::byte> bytes_;
};

class WireReader {
 public:
  static constexpr bool kReads = true;

  // The bytes must outlive the reader.
  explicit WireReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  std::uint8_t u8() { return static_cast<std::uint8_t>(number(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() { return number(8); }
  std::int32_t i32() { return static_cast<std::int32_t>(u32()); }
  std::int64_t i64() { return static_cast<std::int64_t>(u64()); }
  bool boolean();  // any value except 0 and 1 is a fault
  double f64();
  // A value longer than `limit` is a fault.
  std::string string(std::size_t limit);
  std::vector<std::byte> bytes(std::size_t limit);
  std::span<const std::byte> view(std::size_t limit);  // the same without a copy
  std::vector<std::int64_t> i64s(std::size_t limit);
  std::vector<int> i32s(std::size_t limit);
  // A u8 that must be less than `count`, as the values of an enumeration are.
  template <class Enum>
  Enum enumerator(int count) {
    const std::uint8_t value = u8();
    if (value >= count) fail("a value of an enumeration is out of range");
    return static_cast<Enum>(ok() ? value : 0);
  }
  // A u32 count, then read(reader) for each item. A fault if the count is above `limit`, or if the remaining bytes
  // cannot hold count * min_item_bytes.
  template <class Item, class Read>
  std::vector<Item> list(std::size_t limit, std::size_t min_item_bytes, Read read) {
    std::vector<Item> items;
    const std::size_t count = list_count(limit, min_item_bytes);
    items.reserve(std::min<std::size_t>(count, 1024));  // an item may be larger in memory than on the wire
    for (std::size_t i = 0; i < count && ok(); ++i) items.push_back(read(*this));
    return items;
  }

  // For fields(): each call reads the bytes that the writer's call of the same name has written.
  template <class... T>
  WireReader& operator()(T&... numbers) {
    (one(numbers), ...);
    return *this;
  }
  template <class Enum>
  WireReader& one_of(Enum& value, int count) {
    value = enumerator<Enum>(count);
    return *this;
  }
  WireReader& text(std::string& value, std::size_t limit) {
    value = string(limit);
    return *this;
  }
  WireReader& cut_text(std::string& value, std::size_t limit) { return text(value, limit); }
  WireReader& blob(std::vector<std::byte>& value, std::size_t limit) {
    value = bytes(limit);
    return *this;
  }
  WireReader& texts(std::vector<std::string>& items, std::size_t limit, std::size_t longest) {
    items = list<std::string>(limit, 4, [longest](WireReader& reader) { return reader.string(longest); });
    return *this;
  }
  template <class T>
  WireReader& numbers(std::vector<T>& items, std::size_t limit) {
    return list(
        items, limit, [](WireReader& reader, T& item) { reader(item); }, sizeof(T));
  }
  // If `min_item_bytes` is 0, the size of an encoded default item is the minimum.
  template <class Item, class Each>
  WireReader& list(std::vector<Item>& items, std::size_t limit, Each each, std::size_t min_item_bytes = 0) {
    if constexpr (std::is_invocable_v<Each, WireWriter&, const Item&>) {
      static const std::size_t least = [&each] {
        WireWriter writer;
        const Item item{};
        each(writer, item);
        return writer.size();
      }();
      if (min_item_bytes == 0) min_item_bytes = least;
    }
    items = list<Item>(limit, min_item_bytes, [&each](WireReader& reader) {
      Item item{};
      each(reader, item);
      return item;
    });
    return *this;
  }
  // Reads a message that is nested in another one. Its faults are reported under its own name.
  template <class T>
  WireReader& nested(T& value, std::size_t limit, std::string_view name) {
    WireReader inner(view(limit));
    if (!ok()) return *this;
    fields(inner, value);
    if (const Status read = inner.finish(name); !read.ok()) fail(inner.fault_, name);
    return *this;
  }
  WireReader& check(bool holds, std::string_view fault) {
    if (!holds) fail(fault);
    return *this;
  }
  // Skips fields that a peer of another version may have added.
  void skip_rest() { rest_ = {}; }

  // For the caller's own checks. finish() reports the first fault.
  void fail(std::string_view what, std::string_view where = {});
  [[nodiscard]] bool ok() const { return fault_.empty(); }
  [[nodiscard]] std::size_t remaining() const { return rest_.size(); }
  // Ok if all bytes were read and there was no fault. Otherwise kProtocol: "<message> from the wire is malformed (...):
  // <fault>".
  Status finish(std::string_view message);

 private:
  template <class T>
  void one(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = boolean();
    } else if constexpr (std::is_floating_point_v<T>) {
      value = f64();
    } else {
      value = static_cast<T>(number(sizeof(T)));
    }
  }
  std::uint64_t number(std::size_t width);
  std::span<const std::byte> take(std::size_t size);
  std::size_t list_count(std::size_t limit, std::size_t min_item_bytes);

  std::span<const std::byte> rest_;
  std::string fault_;
  std::string where_;  // the nested message with the fault; empty if the fault is in the outer message
};

inline std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The written bytes as a string, which is how the store keeps values.
inline std::string as_string(const WireWriter& writer) { return std::string(as_text(writer.view())); }

// Encodes a struct that has fields().
template <class T>
WireWriter encoded(const T& value) {
  WireWriter writer;
  fields(writer, value);
  return writer;
}

// `name` is the name of the message in the error text of finish().
template <class T>
Result<T> decoded(std::span<const std::byte> bytes, std::string_view name) {
  WireReader reader(bytes);
  T value{};
  fields(reader, value);
  DISTRUN_RETURN_IF_ERROR(reader.finish(name));
  return value;
}

}  // namespace distrun::net
