#include "runtime/engine/readiness/fusion.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::engine {
namespace {

using Batches = std::vector<std::vector<std::size_t>>;

Batches plan(const std::vector<Signature>& signatures, FusionLimits limits, const std::vector<int>& sets = {}) {
  std::vector<FusionCandidate> ready;
  for (std::size_t i = 0; i < signatures.size(); ++i) {
    ready.push_back({.set = sets.empty() ? 0 : sets[i], .signature = &signatures[i]});
  }
  return plan_fusion(ready, limits);
}

Signature floats(std::int64_t count) { return {.shape = {count}}; }

Signature grouped(std::int64_t count, std::uint64_t digest) {
  Signature s = floats(count);
  s.group = {.digest = digest, .size = 2, .first = "g"};
  return s;
}

TEST_CASE("tensors of one kind share batches up to the threshold") {
  const std::vector<Signature> four(4, floats(100));  // 400 bytes each
  CHECK(plan(four, {.bytes = 1600}) == Batches{{0, 1, 2, 3}});
  CHECK(plan(four, {.bytes = 1599}) == Batches{{0, 1, 2}, {3}});
  CHECK(plan(four, {.bytes = 800}) == Batches{{0, 1}, {2, 3}});
  CHECK(plan(four, {.bytes = 0}) == Batches{{0}, {1}, {2}, {3}});
  CHECK(plan(four, {.bytes = 1600, .tensors = 3}) == Batches{{0, 1, 2}, {3}});
  CHECK(plan({}, {.bytes = 1}).empty());
}

TEST_CASE("a tensor larger than the threshold runs alone, and smaller ones after it together") {
  CHECK(plan({floats(1000), floats(1), floats(1)}, {.bytes = 100}) == Batches{{0}, {1, 2}});
}

TEST_CASE("what differs is not fused, and does not keep like ones apart") {
  Signature f64 = floats(1);
  f64.dtype = DType::kF64;
  Signature max = floats(1);
  max.reduce = ReduceOp::kMax;
  Signature scaled = floats(1);
  scaled.prescale = 0.5;
  Signature after = floats(1);
  after.postscale = 0.5;
  Signature cuda = floats(1);
  cuda.device = DeviceType::kCuda;
  for (const Signature& other : {f64, max, scaled, after, cuda}) {
    CHECK(plan({floats(1), other, floats(1), other}, {.bytes = 100}) == Batches{{0, 2}, {1, 3}});
  }
  CHECK(plan(std::vector<Signature>(3, floats(1)), {.bytes = 100}, {0, 1, 0}) == Batches{{0, 2}, {1}});
}

TEST_CASE("only allreduces are fused") {
  Signature gather = floats(1);
  gather.kind = OpKind::kAllgather;
  Signature broadcast = floats(1);
  broadcast.kind = OpKind::kBroadcast;
  CHECK(plan({gather, gather, broadcast, broadcast}, {.bytes = 100}) == Batches{{0}, {1}, {2}, {3}});
}

TEST_CASE("a group stays together, whatever the threshold says") {
  CHECK(plan({grouped(100, 7), floats(1), grouped(100, 7)}, {.bytes = 10}) == Batches{{0, 2}, {1}});
  CHECK(plan({floats(1), grouped(10, 7), grouped(10, 7), grouped(10, 8), grouped(10, 8)}, {.bytes = 100}) ==
        Batches{{0, 1, 2}, {3, 4}});
  Signature other_type = grouped(1, 7);
  other_type.dtype = DType::kF64;
  CHECK(plan({grouped(1, 7), other_type}, {.bytes = 100}) == Batches{{0}, {1}});
}

}  // namespace
}  // namespace distrun::engine
