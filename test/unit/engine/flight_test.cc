#include "runtime/engine/run/flight.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

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
