// Little-endian encoding of small messages, bounded on the way in. Every message between distrun processes is written
// and read with these two classes, so that there is one place where lengths are checked (fuzzed: test/fuzz/wire.cc).
// A reader never throws and never reads past its bytes: after the first fault all further reads return zeros and
// finish() tells what was wrong. Nothing is allocated before the bytes for it are known to be there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace distrun::net {

class WireWriter {
 public:
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
  WireWriter& raw(std::span<const std::byte> value);     // the bytes alone
  WireWriter& i64s(std::span<const std::int64_t> list);  // u32 count, then the values (shapes, splits)
  WireWriter& i32s(std::span<const int> list);           // u32 count, then the values (ranks)
  // u32 count, then each item as `write(writer, item)` writes it.
  template <class List, class Write>
  WireWriter& list(const List& items, Write write) {
    u32(static_cast<std::uint32_t>(items.size()));
    for (const auto& item : items) write(*this, item);
    return *this;
  }

  [[nodiscard]] std::span<const std::byte> view() const { return bytes_; }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  WireWriter& number(std::uint64_t value, int width);
  std::vector<std::byte> bytes_;
};

class WireReader {
 public:
  // The bytes must outlive the reader.
  explicit WireReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  std::uint8_t u8() { return static_cast<std::uint8_t>(number(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() { return number(8); }
  std::int32_t i32() { return static_cast<std::int32_t>(u32()); }
  std::int64_t i64() { return static_cast<std::int64_t>(u64()); }
  bool boolean();  // anything but 0 and 1 is a fault
  double f64();
  // A value longer than `limit` is a fault.
  std::string string(std::size_t limit);
  std::vector<std::byte> bytes(std::size_t limit);
  std::span<const std::byte> view(std::size_t limit);  // the same without a copy
  std::vector<std::int64_t> i64s(std::size_t limit);
  std::vector<int> i32s(std::size_t limit);
  // A u8 that must be below `count`, as an enumeration's values are.
  template <class Enum>
  Enum enumerator(int count) {
    const std::uint8_t value = u8();
    if (value >= count) fail("a value of an enumeration is out of range");
    return static_cast<Enum>(ok() ? value : 0);
  }
  // u32 count (a fault above `limit`, or when the rest cannot hold count * min_item_bytes), then `read(reader)` each.
  template <class Item, class Read>
  std::vector<Item> list(std::size_t limit, std::size_t min_item_bytes, Read read) {
    std::vector<Item> items;
    const std::size_t count = list_count(limit, min_item_bytes);
    items.reserve(std::min<std::size_t>(count, 1024));  // an item may be larger here than on the wire
    for (std::size_t i = 0; i < count && ok(); ++i) items.push_back(read(*this));
    return items;
  }

  // For the caller's own checks; the first fault is the one that finish() reports.
  void fail(std::string_view what);
  [[nodiscard]] bool ok() const { return fault_.empty(); }
  [[nodiscard]] std::size_t remaining() const { return rest_.size(); }
  // Everything was read and nothing was wrong; otherwise kProtocol: "<message> from the wire is malformed
  // (...): <fault>".
  Status finish(std::string_view message);

 private:
  std::uint64_t number(std::size_t width);
  std::span<const std::byte> take(std::size_t size);
  std::size_t list_count(std::size_t limit, std::size_t min_item_bytes);

  std::span<const std::byte> rest_;
  std::string fault_;
};

inline std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace distrun::net
