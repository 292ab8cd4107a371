#include "runtime/net/bytes/wire.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace distrun::net {

WireWriter& WireWriter::number(std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  return *this;
}

WireWriter& WireWriter::f64(double value) { return u64(std::bit_cast<std::uint64_t>(value)); }

WireWriter& WireWriter::raw(std::span<const std::byte> value) {
  bytes_.insert(bytes_.end(), value.begin(), value.end());
  return *this;
}

WireWriter& WireWriter::bytes(std::span<const std::byte> value) {
  DISTRUN_CHECK(value.size() <= std::numeric_limits<std::uint32_t>::max(), "a value longer than 4 GiB on the wire");
  return u32(static_cast<std::uint32_t>(value.size())).raw(value);
}

WireWriter& WireWriter::string(std::string_view value) { return bytes(as_bytes(value)); }

WireWriter& WireWriter::cut_text(std::string_view value, std::size_t limit) {
  if (value.size() <= limit) return string(value);
  const auto inside = [&](std::size_t at) { return (static_cast<unsigned char>(value[at]) & 0xC0U) == 0x80U; };
  while (limit > 0 && inside(limit)) --limit;
  return string(value.substr(0, limit));
}

WireWriter& WireWriter::i64s(std::span<const std::int64_t> items) {
  return list(items, [](WireWriter& writer, std::int64_t item) { writer.i64(item); });
}

WireWriter& WireWriter::i32s(std::span<const int> items) {
  return list(items, [](WireWriter& writer, int item) { writer.i32(item); });
}

void WireReader::fail(std::string_view what, std::string_view where) {
  if (fault_.empty()) {
    fault_ = what;
    where_ = where;
  }
  rest_ = {};
}

std::span<const std::byte> WireReader::take(std::size_t size) {
  if (size > rest_.size()) {
    fail("it ends too early");
    return {};
  }
  const auto taken = rest_.first(size);
  rest_ = rest_.subspan(size);
  return taken;
}

std::uint64_t WireReader::number(std::size_t width) {
  std::uint64_t value = 0;
  const auto taken = take(width);
  for (std::size_t i = 0; i < taken.size(); ++i) value |= std::to_integer<std::uint64_t>(taken[i]) << (8 * i);
  return value;
}

bool WireReader::boolean() {
  const std::uint8_t value = u8();
  if (value > 1) fail("a truth value is neither 0 nor 1");
  return value == 1;
}

double WireReader::f64() { return std::bit_cast<double>(u64()); }

std::span<const std::byte> WireReader::view(std::size_t limit) {
  const std::size_t size = u32();
  if (size > limit) {
    fail("a value has " + std::to_string(size) + " bytes, and at most " + std::to_string(limit) + " are allowed");
    return {};
  }
  return take(size);
}

std::vector<std::byte> WireReader::bytes(std::size_t limit) {
  const auto value = view(limit);
  return {value.begin(), value.end()};
}

std::string WireReader::string(std::size_t limit) {
  const auto value = view(limit);
  std::string text(value.size(), '\0');
  std::transform(value.begin(), value.end(), text.begin(), [](std::byte b) { return std::to_integer<char>(b); });
  return text;
}

std::size_t WireReader::list_count(std::size_t limit, std::size_t min_item_bytes) {
  const std::size_t count = u32();
  if (count > limit) {
    fail("a list has " + std::to_string(count) + " items, and at most " + std::to_string(limit) + " are allowed");
    return 0;
  }
  // Checked before memory is reserved: the remaining bytes cannot hold this many items.
  if (count > rest_.size() / std::max<std::size_t>(min_item_bytes, 1)) {
    fail("it ends too early");
    return 0;
  }
  return count;
}

std::vector<std::int64_t> WireReader::i64s(std::size_t limit) {
  return list<std::int64_t>(limit, 8, [](WireReader& reader) { return reader.i64(); });
}

std::vector<int> WireReader::i32s(std::size_t limit) {
  return list<int>(limit, 4, [](WireReader& reader) { return reader.i32(); });
}

Status WireReader::finish(std::string_view message) {
  if (ok() && !rest_.empty()) fail(std::to_string(rest_.size()) + " bytes too many at its end");
  if (ok()) return {};
  return {Errc::kProtocol,
          std::string(where_.empty() ? message : std::string_view(where_)) +
              " is malformed (if builds of distrun differ, install one build on all hosts): " + fault_};
}

}  // namespace distrun::net
