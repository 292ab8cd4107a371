// runtime/net/store/store_protocol.h and store_table.h: the messages that an authenticated peer may send.
#include <algorithm>

#include "runtime/net/store/store_protocol.h"
#include "runtime/net/store/store_table.h"
#include "test/fuzz/targets.h"

namespace distrun::fuzz {
namespace {

using net::StoreReply;
using net::StoreRequest;

// A message has only one encoding: reading and writing it again gives the same bytes.
template <class Message>
void require_canonical(const Message& message, std::span<const std::byte> bytes) {
  const Bytes again = net::encode(message);
  require(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()), "encode(decode(x)) == x");
}

}  // namespace

// The input is a series of requests to one small table; a byte before each request is its length. The input is also
// tried as one reply.
int store(const std::uint8_t* data, std::size_t size) {
  const auto all = as_span(data, size);
  if (const auto reply = net::decode_reply(all); reply.ok()) require_canonical(*reply, all);
  net::StoreTable table(2000, 4);
  for (std::size_t at = 0; at < size;) {
    const std::size_t length = std::min<std::size_t>(data[at], size - at - 1);
    const auto bytes = all.subspan(at + 1, length);
    at += 1 + length;
    const auto request = net::decode_request(bytes);
    if (!request.ok()) continue;
    require_canonical(*request, bytes);
    table.handle(static_cast<int>(at % 3), *request, [](int rank, const net::StoreReply& reply) {
      require(rank >= 0 && rank < 3, "answers go to those who asked");
      require(net::decode_reply(net::encode(reply)).ok(), "answers can be read");
    });
    if (at % 7 == 0) table.forget(static_cast<int>(at % 3));
  }
  return 0;
}

std::vector<Bytes> store_seeds() {
  std::vector<Bytes> seeds;
  Bytes row;
  using Kind = StoreRequest::Kind;
  const net::RankFailure why{.cause = "why", .tensor = "t", .place = {.file = "f", .line = 2}};
  for (const StoreRequest& request :
       {StoreRequest{.kind = Kind::kGet, .id = 1, .key = "k"}, StoreRequest{.kind = Kind::kGet, .id = 2, .key = "k"},
        StoreRequest{.kind = Kind::kCancel, .id = 1},
        StoreRequest{.kind = Kind::kSet, .id = 3, .key = "k", .value = "v"},
        StoreRequest{.kind = Kind::kAdd, .id = 4, .key = "c", .delta = -1}, StoreRequest{.kind = Kind::kLeave},
        StoreRequest{.kind = Kind::kFailure, .failure = why},
        StoreRequest{.kind = Kind::kEarlyLeave, .rank = 3, .failure = why},
        StoreRequest{.kind = Kind::kStop, .value = "why"},
        StoreRequest{.kind = Kind::kStall, .missed = {.ranks = {3, 4}}, .failure = why},
        StoreRequest{
            .kind = Kind::kLoss, .missed = {.ranks = {3}, .link = LinkEnd::kSilent, .by_other = true}, .failure = why},
        StoreRequest{.kind = Kind::kNoProgress, .failure = why},
        StoreRequest{.kind = Kind::kSwap, .id = 5, .key = "k", .expected = "v", .wanted = "w"},
        StoreRequest{.kind = Kind::kSwap, .id = 6, .key = "s", .wanted = "w"},
        StoreRequest{.kind = Kind::kCount, .id = 7, .key = "k"}, StoreRequest{.kind = Kind::kErase, .key = "k"},
        StoreRequest{.kind = Kind::kWaits, .waits = {{.what = "x", .waiting = {0, 1}, .missing = {2}}}},
        StoreRequest{.kind = Kind::kState,
        .state = {.operation = "x",
                 .exception = "e",
                 .threads = {{.name = "", .frames = {{.place = {.file = "f"}, .function = "g"}}}}}}}) {
    const Bytes bytes = net::encode(request);
    row.push_back(static_cast<std::byte>(bytes.size()));
    row.insert(row.end(), bytes.begin(), bytes.end());
  }
  seeds.push_back(row);
  seeds.push_back(net::encode(StoreReply{.kind = StoreReply::Kind::kValue, .id = 1, .text = "v"}));
  seeds.push_back(net::encode(StoreReply{.kind = StoreReply::Kind::kAbsent, .id = 1}));
  seeds.push_back(net::encode(StoreReply{.kind = StoreReply::Kind::kSum, .id = 1, .sum = 3}));
  seeds.push_back(net::encode(StoreReply{
      .kind = StoreReply::Kind::kEvent,
      .event = {.kind = net::JobEvent::Kind::kRankLeft, .rank = 1, .signal = 9, .host = "h", .cause = "killed"}}));
  return seeds;
}

}  // namespace distrun::fuzz
