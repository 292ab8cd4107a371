// runtime/net/bytes/wire.h: the first half of the input is a program of reads, the second half is the data to read.
#include "runtime/net/bytes/wire.h"

#include "runtime/base/types.h"
#include "test/fuzz/targets.h"

namespace distrun::fuzz {
namespace {

void read_one(net::WireReader& reader, std::uint8_t what) {
  constexpr std::size_t kLimit = 100;
  switch (what % 12) {
    case 0:
      return (void)reader.u8();
    case 1:
      return (void)reader.u16();
    case 2:
      return (void)reader.u32();
    case 3:
      return (void)reader.u64();
    case 4:
      return (void)reader.boolean();
    case 5:
      return (void)reader.f64();
    case 6:
      return require(reader.string(kLimit).size() <= kLimit, "a string is bounded");
    case 7:
      return require(reader.bytes(kLimit).size() <= kLimit, "bytes are bounded");
    case 8:
      return require(reader.i64s(kLimit).size() <= kLimit, "a list is bounded");
    case 9:
      return (void)reader.i32s(SIZE_MAX);
    case 10:
      return (void)reader.list<std::string>(SIZE_MAX, 4, [](net::WireReader& r) { return r.string(SIZE_MAX); });
    default:
      return require(static_cast<int>(reader.enumerator<OpKind>(kNumOpKinds)) < kNumOpKinds, "an enumerator exists");
  }
}

}  // namespace

int wire(const std::uint8_t* data, std::size_t size) {
  const std::size_t half = size / 2;
  net::WireReader reader(as_span(data + half, size - half));
  for (std::size_t i = 0; i < half; ++i) {
    const std::size_t before = reader.remaining();
    read_one(reader, data[i]);
    require(reader.remaining() <= before, "a read never gives bytes back");
    require(reader.ok() || reader.remaining() == 0, "nothing is read after a fault");
  }
  const bool all = reader.remaining() == 0 && reader.ok();
  require(reader.finish("x").ok() == all, "finish() is an error unless everything was read");
  return 0;
}

std::vector<Bytes> wire_seeds() {
  net::WireWriter writer;
  for (const int what : {6, 7, 8, 9, 10, 4, 11, 5, 3}) writer.u8(static_cast<std::uint8_t>(what));
  net::WireWriter values;
  values.string("text").bytes(net::as_bytes("bytes")).i64s(std::vector<std::int64_t>{1, 2});
  values.i32s(std::vector<int>{3}).u32(2).string("a").string("b").boolean(true).u8(3).f64(2.5).u64(7);
  // The program and the data must have the same length. Both are padded: with reads of single bytes, and with their
  // bytes.
  Bytes program = writer.take();
  Bytes data = values.take();
  while (program.size() < data.size()) program.push_back(std::byte{0});
  program.insert(program.end(), data.begin(), data.end());
  return {program};
}

}  // namespace distrun::fuzz
