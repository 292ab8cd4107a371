// A whole ring in one thread, without sockets: the transfers of every member, and a queue of messages on every link.
// Members take turns in random order. Sooner or later this meets every order of events that could lock up the ring.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "runtime/backend/tcp/ring_transfer.h"
#include "runtime/backend/tcp/stream.h"

namespace distrun::backend::tcp {
namespace {

struct Message {
  Header header;
  std::vector<std::byte> payload;
};

struct RingMember {
  std::vector<float> in, out;
  std::vector<Segment> segments;
  std::vector<std::size_t> counts;
  std::unique_ptr<ChunkPool> pool;
  std::deque<RingTransfer> transfers;
  std::size_t sending = 0, receiving = 0;
};

class SimulatedRing {
 public:
  SimulatedRing(std::size_t size, Tuning tuning, unsigned seed) : tuning_(tuning), members_(size), random_(seed) {
    links_.resize(size);
    for (RingMember& member : members_)
      member.pool = std::make_unique<ChunkPool>(tuning.chunk_bytes, 2 * tuning.window);
  }

  std::vector<RingMember>& members() { return members_; }

  void start(std::size_t index, Operation operation) {
    RingMember& member = members_[index];
    member.transfers.emplace_back(operation, RingTransferArgs{.token = member.transfers.size(),
                                                              .sequence = member.transfers.size(),
                                                              .size = members_.size(),
                                                              .index = index,
                                                              .tuning = tuning_,
                                                              .pool = member.pool.get()});
    REQUIRE(member.transfers.back().reserve().ok());
  }

  // Returns true if every transfer of every member completed, and false if the ring locked up.
  bool run(std::size_t link_capacity) {
    for (std::size_t idle = 0; idle < 200 * members_.size();) {
      const std::size_t index = random_() % members_.size();
      const bool moved = random_() % 2 == 0 ? send(index, link_capacity) : receive(index);
      idle = moved ? 0 : idle + 1;
    }
    for (RingMember& member : members_) {
      for (RingTransfer& transfer : member.transfers) {
        if (!transfer.complete()) return false;
        transfer.finish();
      }
    }
    return true;
  }

 private:
  bool send(std::size_t index, std::size_t capacity) {
    RingMember& member = members_[index];
    while (member.sending < member.transfers.size() && member.transfers[member.sending].sent_all()) ++member.sending;
    if (member.sending == member.transfers.size() || links_[index].size() >= capacity) return false;
    RingTransfer& transfer = member.transfers[member.sending];
    if (!transfer.can_send()) return false;
    Message message{.header = transfer.next_send(), .payload = {}};
    Pieces pieces;
    transfer.add_send(pieces);
    for (std::size_t i = 0; i < pieces.count(); ++i) {
      const auto* from = static_cast<const std::byte*>(pieces.data()[i].iov_base);
      message.payload.insert(message.payload.end(), from, from + pieces.data()[i].iov_len);
    }
    REQUIRE(message.payload.size() == message.header.bytes);
    links_[index].push_back(std::move(message));
    transfer.end_send();
    return true;
  }

  bool receive(std::size_t index) {
    RingMember& member = members_[index];
    auto& link = links_[(index + members_.size() - 1) % members_.size()];
    while (member.receiving < member.transfers.size() && member.transfers[member.receiving].received_all())
      ++member.receiving;
    if (link.empty() || member.receiving == member.transfers.size()) return false;
    RingTransfer& transfer = member.transfers[member.receiving];
    Pieces pieces;
    if (!transfer.add_receive(pieces)) return false;
    const Message message = std::move(link.front());
    link.pop_front();
    REQUIRE(to_string(message.header) == to_string(transfer.next_receive()));
    REQUIRE(pieces.size() == message.payload.size());
    std::size_t at = 0;
    for (std::size_t i = 0; i < pieces.count(); ++i) {
      std::memcpy(pieces.data()[i].iov_base, message.payload.data() + at, pieces.data()[i].iov_len);
      at += pieces.data()[i].iov_len;
    }
    transfer.end_receive();
    return true;
  }

  Tuning tuning_;
  std::vector<RingMember> members_;
  std::vector<std::deque<Message>> links_;  // links_[r]: from r to its right neighbour
  std::mt19937 random_;
};

float value(std::size_t member, std::size_t i) { return static_cast<float>((member * 31 + i * 7) % 17) - 8.0F; }

// Cuts `count` elements into segments of random length, some of them empty.
std::vector<Segment> cut(std::vector<float>& in, std::vector<float>& out, std::mt19937& random) {
  std::vector<Segment> segments;
  for (std::size_t at = 0; at < in.size();) {
    const std::size_t part = std::min<std::size_t>(in.size() - at, random() % 40);
    segments.push_back({.in = reinterpret_cast<const std::byte*>(in.data() + at),
                        .out = reinterpret_cast<std::byte*>(out.data() + at),
                        .count = part});
    at += part;
  }
  return segments;
}

// Small chunks, so that little data makes many of them.
constexpr Tuning kTuning{.chunk_bytes = 256, .window = 3, .gather_bytes = 300};

void check_allreduce(std::size_t size, std::size_t count, bool in_place, std::size_t capacity) {
  SimulatedRing ring(size, kTuning, static_cast<unsigned>(size * 1000 + count));
  std::mt19937 random(7);
  for (std::size_t m = 0; m < size; ++m) {
    RingMember& member = ring.members()[m];
    member.in.resize(count);
    for (std::size_t i = 0; i < count; ++i) member.in[i] = value(m, i);
    member.out.assign(count, -1.0F);
    std::vector<float>& out = in_place ? member.in : member.out;
    member.segments = cut(member.in, out, random);
    ring.start(m, {.segments = member.segments, .prescale = 2.0, .postscale = 0.5});
  }
  CAPTURE(size, count, in_place, capacity);
  REQUIRE(ring.run(capacity));
  for (std::size_t i = 0; i < count; ++i) {
    float expected = 0;
    for (std::size_t m = 0; m < size; ++m) expected += value(m, i);
    for (const RingMember& member : ring.members()) REQUIRE((in_place ? member.in : member.out)[i] == expected);
  }
}

}  // namespace

TEST_CASE("tcp schedule: all-reduce is right and never locks up, in any order of events") {
  for (const std::size_t size : {2U, 3U, 4U, 5U, 8U}) {
    for (const std::size_t count : {0U, 1U, 9U, 20U, 300U, 1000U, 5000U}) {
      check_allreduce(size, count, false, 1);
      check_allreduce(size, count, true, 100);
    }
  }
}

TEST_CASE("tcp schedule: operations of all kinds follow each other without waiting for the ring to drain") {
  for (const std::size_t size : {2U, 3U, 5U}) {
    SimulatedRing ring(size, kTuning, static_cast<unsigned>(size));
    std::vector<std::vector<float>> sums(size, std::vector<float>(2000)), gathered(size), cast(size);
    std::vector<std::size_t> counts;
    for (std::size_t m = 0; m < size; ++m) counts.push_back(m == 1 ? 0 : 100 * m + 7);
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    for (std::size_t m = 0; m < size; ++m) {
      RingMember& member = ring.members()[m];
      member.in.resize(counts[m]);
      for (std::size_t i = 0; i < counts[m]; ++i) member.in[i] = value(m, i);
      for (std::size_t i = 0; i < 2000; ++i) sums[m][i] = value(m, i);
      gathered[m].resize(total);
      cast[m].assign(777, m == 1 ? 3.0F : 0.0F);
      auto bytes = [](std::vector<float>& v) { return reinterpret_cast<std::byte*>(v.data()); };
      member.segments = {{.in = bytes(sums[m]), .out = bytes(sums[m]), .count = 2000},
                         {.in = bytes(member.in), .out = bytes(gathered[m]), .count = counts[m]},
                         {.in = bytes(cast[m]), .out = bytes(cast[m]), .count = 777}};
      const std::span<const Segment> all = member.segments;
      ring.start(m, {.segments = all.subspan(0, 1)});
      ring.start(m, {.kind = OpKind::kAllgather, .segments = all.subspan(1, 1), .counts = counts});
      ring.start(m, {.kind = OpKind::kBarrier});
      ring.start(m, {.kind = OpKind::kBroadcast, .segments = all.subspan(2, 1), .root = 1});
    }
    REQUIRE(ring.run(2));
    for (std::size_t m = 0; m < size; ++m) {
      REQUIRE(sums[m] == sums[0]);
      REQUIRE(cast[m] == std::vector<float>(777, 3.0F));
      std::size_t at = 0;
      for (std::size_t k = 0; k < size; ++k) {
        for (std::size_t i = 0; i < counts[k]; ++i) REQUIRE(gathered[m][at++] == value(k, i));
      }
    }
  }
}

TEST_CASE("tcp message: a header survives the wire; anything else is refused") {
  const Header header{.kind = MessageKind::kAbort,
                      .op = OpKind::kBroadcast,
                      .dtype = DType::kBool,
                      .sequence = 1ULL << 40,
                      .index = 77,
                      .bytes = 128,
                      .rank = 12};
  const HeaderBytes bytes = encode(header);
  const auto back = decode(bytes);
  REQUIRE(back.ok());
  REQUIRE(*back == header);
  for (const std::size_t at : {0U, 4U, 5U, 6U, 31U}) {
    HeaderBytes broken = bytes;
    broken[at] ^= std::byte{0xf0};
    REQUIRE(decode(broken).status().code() == Errc::kProtocol);
  }
}

}  // namespace distrun::backend::tcp
