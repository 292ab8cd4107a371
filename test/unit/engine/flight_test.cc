#include "runtime/engine/run/flight.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace distrun::engine {
namespace {

// A backend that reduces nothing. `scatter_gather` also says whether it scales.
class StillBackend final : public backend::Backend {
 public:
  explicit StillBackend(bool scatter_gather)
      : capabilities_{.ops = ~0U, .dtypes = ~0U, .devices = 1, .scatter_gather = scatter_gather} {}
  [[nodiscard]] std::string_view name() const override { return "still"; }
  [[nodiscard]] const backend::Capabilities& capabilities() const override { return capabilities_; }
  Status start(const backend::Operation&, std::uint64_t) override { return {}; }
  bool progress() override { return false; }
  void completed(std::vector<backend::Completed>&) override {}
  void abort(const Status&) override {}
  [[nodiscard]] std::optional<EndedLink> lost_peer() const override { return std::nullopt; }

 private:
  const backend::Capabilities capabilities_;
};

struct Packed {
  ProcessSet set{.id = 0, .members = {0, 1}, .index = 0};
  std::vector<float> a = {1, 2};
  std::vector<float> b = {3};
  Flight flight;

  explicit Packed(double scale) {
    for (std::vector<float>* memory : {&a, &b}) {
      const Shape shape = {static_cast<std::int64_t>(memory->size())};
      const Submission one{.name = "t", .shape = shape, .input = memory->data(), .output = memory->data()};
      const Signature signature{.prescale = scale, .shape = shape};
      flight.tensors.push_back({.tensor = std::make_shared<Tensor>(one, signature, Clock::now()), .first_dims = {}});
    }
  }
};

TEST_CASE("a backend that cannot gather gets one scaled buffer, whose parts come back") {
  Packed packed(2.0);
  StillBackend backend(false);
  REQUIRE(prepare(packed.set, backend, false, packed.flight).ok());
  REQUIRE(packed.flight.operation.segments.size() == 1);
  const backend::Segment& all = packed.flight.operation.segments.front();
  CHECK(all.count == 3);
  const auto* values = static_cast<const float*>(static_cast<const void*>(all.in));
  CHECK((values[0] == 2 && values[1] == 4 && values[2] == 6));
  CHECK(packed.flight.operation.prescale == 1.0);
  unpack(packed.flight);
  CHECK((packed.a == std::vector<float>{2, 4} && packed.b == std::vector<float>{6}));
}

// One tensor of `count` elements in an operation of a set of two.
struct OfDType {
  ProcessSet set{.id = 0, .members = {0, 1}, .index = 0};
  std::vector<std::byte> memory;
  Flight flight;

  OfDType(OpKind kind, ReduceOp reduce, DType dtype, std::vector<std::byte> bytes, double postscale = 1.0)
      : memory(std::move(bytes)) {
    const Shape shape = {static_cast<std::int64_t>(memory.size() / size_of(dtype))};
    const bool gathers = kind == OpKind::kAllgather;
    const Submission one{.kind = kind,
                         .name = "t",
                         .dtype = dtype,
                         .shape = shape,
                         .input = memory.data(),
                         .output = gathers ? nullptr : memory.data()};
    const Signature signature{.kind = kind, .dtype = dtype, .reduce = reduce, .postscale = postscale, .shape = shape};
    flight.tensors.push_back(
        {.tensor = std::make_shared<Tensor>(one, signature, Clock::now()),
         .first_dims = gathers ? std::vector<std::int64_t>{shape.front(), 1} : std::vector<std::int64_t>{}});
  }
};

TEST_CASE("a sum of complex numbers reaches the backend as floats, and its average and scale come back so") {
  const std::vector<float> parts = {1, 2, 3, 4};
  std::vector<std::byte> bytes(sizeof(float) * parts.size());
  std::memcpy(bytes.data(), parts.data(), bytes.size());
  OfDType sum(OpKind::kAllreduce, ReduceOp::kAverage, DType::kC64, bytes, 3.0);
  StillBackend backend(false);
  REQUIRE(prepare(sum.set, backend, false, sum.flight).ok());
  CHECK(sum.flight.operation.dtype == DType::kF32);
  CHECK(sum.flight.operation.segments.front().count == 4);
  unpack(sum.flight);  // divided by two members, times three
  std::vector<float> made(4);
  std::memcpy(made.data(), sum.memory.data(), sum.memory.size());
  CHECK(made == std::vector<float>{1.5F, 3, 4.5F, 6});

  OfDType product(OpKind::kAllreduce, ReduceOp::kProduct, DType::kC64, bytes);
  REQUIRE(prepare(product.set, backend, false, product.flight).ok());
  CHECK(product.flight.operation.dtype == DType::kC64);
  CHECK(product.flight.operation.segments.front().count == 2);
}

TEST_CASE("what is only moved reaches the backend as bytes") {
  StillBackend backend(true);
  OfDType gathered(OpKind::kAllgather, ReduceOp::kSum, DType::kC128, std::vector<std::byte>(32));
  REQUIRE(prepare(gathered.set, backend, false, gathered.flight).ok());
  CHECK(gathered.flight.operation.dtype == DType::kU8);
  CHECK(gathered.flight.counts == std::vector<std::size_t>{32, 16});
  CHECK(gathered.flight.tensors.front().tensor->output().bytes == 48);
  OfDType small(OpKind::kBroadcast, ReduceOp::kSum, DType::kF8E5M2, std::vector<std::byte>(5));
  REQUIRE(prepare(small.set, backend, false, small.flight).ok());
  CHECK(small.flight.operation.dtype == DType::kU8);
  CHECK(small.flight.operation.segments.front().count == 5);
  OfDType old(OpKind::kBroadcast, ReduceOp::kSum, DType::kI32, std::vector<std::byte>(8));
  REQUIRE(prepare(old.set, backend, false, old.flight).ok());
  CHECK(old.flight.operation.dtype == DType::kI32);
}

TEST_CASE("a backend that can gather gets the tensors' own memory") {
  Packed packed(2.0);
  StillBackend backend(true);
  REQUIRE(prepare(packed.set, backend, false, packed.flight).ok());
  REQUIRE(packed.flight.operation.segments.size() == 2);
  CHECK(packed.flight.operation.prescale == 2.0);
  CHECK(packed.flight.packed == nullptr);
  unpack(packed.flight);
  CHECK(packed.a == std::vector<float>{1, 2});
}

TEST_CASE("a set counts what is in flight and is active for as long") {
  std::vector<ProcessSet*> active;
  ProcessSet set;
  {
    const Counted one(active, set);
    const Counted two(active, set);
    CHECK(set.in_flight == 2);
    CHECK(active.size() == 1);
  }
  CHECK(set.in_flight == 0);
  CHECK(active.empty());
}

TEST_CASE("sizes that do not fit the set are a broken log") {
  ProcessSet set{.id = 0, .members = {0, 1}, .index = 0};
  StillBackend backend(true);
  Flight flight;
  const Submission one{.kind = OpKind::kAllgather, .name = "t", .shape = {1}};
  const Signature signature{.kind = OpKind::kAllgather, .shape = {1}};
  flight.tensors.push_back({.tensor = std::make_shared<Tensor>(one, signature, Clock::now()), .first_dims = {1, 1, 1}});
  CHECK(prepare(set, backend, false, flight).code() == Errc::kProtocol);
}

}  // namespace
}  // namespace distrun::engine
