#include "runtime/engine/protocol/messages.h"

#include <catch2/catch_test_macros.hpp>
#include <random>

#include "test/support/digest.h"

namespace distrun::engine {
namespace {

Status some_error() {
  return Status(ErrorInfo{.code = Errc::kRankLost,
                          .message = "rank 3 was lost",
                          .tensor = "t",
                          .ranks = {3, 4},
                          .host = "node1",
                          .cause = "killed by signal 9 (SIGKILL)",
                          .usable = false});
}

Frame full_frame() {
  Frame frame{.capabilities = 5, .epoch = 2, .index = 77};
  Signature signature{.kind = OpKind::kBroadcast, .dtype = DType::kBF16, .device = DeviceType::kCuda};
  signature.reduce = ReduceOp::kProduct;
  signature.prescale = 0.125;
  signature.postscale = -3.5;
  signature.root = 6;
  signature.shape = {4, 0, 9};
  signature.group = {.digest = 0xDEADBEEFCAFE, .size = 3, .first = "first"};
  frame.messages = {
      message::Submitted{.set = 4, .name = "grad", .signature = signature, .refusal = "no backend"},
      message::Ready{.ids = {1, 2, 0xFFFFFFFF}},
      message::Called{.call = {.kind = Call::Kind::kAddSet,
                               .ranks = {0, 2},
                               .set = 1,
                               .path = "p",
                               .members_only = true,
                               .unordered = true}},
      message::SetMade{.set = 2, .result = some_error()},
      message::Leaving{},
      message::Events{.events = {{.start_ns = -5, .duration_ns = 9, .tensor = "a", .phase = "QUEUE"}}},
      message::Append{
          .entries = {entry::Run{.set = 1, .tensors = {{.id = 3}, {.id = 4, .name = "n", .first_dims = {1, 2}}}},
                      entry::Fail{.set = 1, .name = "x", .error = some_error()}, entry::Evict{.ids = {9}},
                      entry::MakeSet{.set = 8, .ranks = {1, 2}, .members_only = true, .unordered = true},
                      entry::RemoveSet{.set = 8},
                      entry::EndCall{.result = {}, .set = 8, .ranks = {1, 2}, .unordered = true},
                      entry::Timeline{.path = "/tmp/t.json"}, entry::Left{.rank = 2}, entry::Shutdown{}}},
      message::Ping{.number = 1, .sent_ns = 2},
      message::Pong{.number = 1, .sent_ns = 2, .here_ns = 3},
      message::Abort{.why = some_error()},
      message::StopAsked{.cause = "SIGTERM"},
      message::StopCount{.calls = 1ULL << 40U},
      message::StopHold{},
      message::StopAt{.call = 7},
      message::Drained{},
      message::WaitAsked{.round = 3},
      message::WaitAnswer{.round = 3,
                          .wait = net::MainWait::kForever,
                          .moves = true,
                          .changes = 1ULL << 40U,
                          .cpu_ns = 5,
                          .operation = "join"},
  };
  return frame;
}

TEST_CASE("every message and entry survives the wire") {
  const auto bytes = encode(full_frame());
  const auto decoded = decode(bytes);
  REQUIRE(decoded.ok());
  CHECK(decoded->capabilities == 5);
  CHECK(decoded->epoch == 2);
  CHECK(decoded->index == 77);
  CHECK(encode(*decoded) == bytes);  // no field is lost or added

  const auto& submitted = std::get<message::Submitted>(decoded->messages[0]);
  CHECK(submitted.signature == std::get<message::Submitted>(full_frame().messages[0]).signature);
  CHECK(std::get<message::Ready>(decoded->messages[1]).ids.back() == 0xFFFFFFFF);
  const auto& append = std::get<message::Append>(decoded->messages[6]);
  REQUIRE(append.entries.size() == 9);
  CHECK(std::get<entry::Run>(append.entries[0]).tensors[1].first_dims == std::vector<std::int64_t>{1, 2});
  const Status error = std::get<entry::Fail>(append.entries[1]).error;
  CHECK(error.info().ranks == std::vector<int>{3, 4});
  CHECK(error.info().cause == "killed by signal 9 (SIGKILL)");
  CHECK_FALSE(error.info().usable);
  CHECK(std::get<message::Abort>(decoded->messages[9]).why.code() == Errc::kRankLost);
}

TEST_CASE("the bytes of every message are those of docs/internals/wire.md") {
  CHECK(encode(full_frame()).size() == 698);
  CHECK(digest(encode(full_frame())) == 0xd6f398369e256d15);
}

TEST_CASE("a frame cut at any byte, or with any byte flipped, is an error or another frame, never a fault",
          "[one_thread]") {
  const auto bytes = encode(full_frame());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decode(std::span(bytes).first(size)).ok());
  }
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    auto broken = bytes;
    for (int flips = 0; flips < 1 + round % 4; ++flips) {
      broken[random() % broken.size()] = static_cast<std::byte>(random());
    }
    if (const auto frame = decode(broken); frame.ok()) CHECK(encode(*frame).size() <= kMaxFrame);
  }
}

TEST_CASE("a status whose texts are longer than a peer takes arrives cut, at a whole character") {
  ErrorInfo info{.code = Errc::kInternal, .usable = false};
  info.message = "x";
  for (int i = 0; i < 1 << 20; ++i) info.message += "\u00e9";
  info.tensor = std::string(5000, 't');
  info.host = std::string(5000, 'h');
  info.cause = std::string(2 << 20, 'c');
  const Frame frame{.messages = {message::Abort{.why = Status(info)}, message::StopAsked{.cause = info.cause},
                                 message::Submitted{.name = "n", .signature = {}, .refusal = info.cause}}};
  const auto decoded = decode(encode(frame));
  REQUIRE(decoded.ok());
  const ErrorInfo& there = std::get<message::Abort>(decoded->messages[0]).why.info();
  CHECK(there.message == info.message.substr(0, (1 << 20) - 1));
  CHECK(there.tensor == info.tensor.substr(0, 4096));
  CHECK(there.host == info.host.substr(0, 4096));
  CHECK(there.cause.size() == 1 << 20);
  CHECK_FALSE(there.usable);
}

TEST_CASE("another format is refused with what to do") {
  auto bytes = encode(Frame{});
  bytes[0] = std::byte{99};
  const auto frame = decode(bytes);
  REQUIRE_FALSE(frame.ok());
  CHECK(frame.status().code() == Errc::kProtocol);
  CHECK(frame.status().message().find("Install the same version") != std::string::npos);
}

TEST_CASE("a shape that is negative or does not fit into memory does not come in") {
  for (const Shape& shape : {Shape{-1}, Shape{1LL << 62, 1LL << 62}, Shape{1LL << 62, 1LL << 62, 0}}) {
    const auto bytes =
        encode(Frame{.messages = {message::Submitted{.name = "x", .signature = Signature{.shape = shape}}}});
    CHECK_FALSE(decode(bytes).ok());
  }
}

TEST_CASE("a reduction that the dtype does not have does not come in") {
  const auto comes_in = [](OpKind kind, DType dtype, ReduceOp reduce) {
    const Signature signature{.kind = kind, .dtype = dtype, .reduce = reduce};
    return decode(encode(Frame{.messages = {message::Submitted{.name = "x", .signature = signature}}})).ok();
  };
  CHECK(comes_in(OpKind::kAllreduce, DType::kC64, ReduceOp::kProduct));
  CHECK_FALSE(comes_in(OpKind::kAllreduce, DType::kC64, ReduceOp::kMin));
  CHECK_FALSE(comes_in(OpKind::kReducescatter, DType::kF8E5M2, ReduceOp::kSum));
  CHECK(comes_in(OpKind::kBroadcast, DType::kF8E5M2, ReduceOp::kSum));
}

}  // namespace
}  // namespace distrun::engine
