#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "runtime/backend/hierarchical/device_order.h"
#include "runtime/backend/hierarchical/hierarchical_backend.h"
#include "runtime/backend/hierarchical/layout.h"

namespace distrun::backend::hierarchical {
namespace {

using Members = std::vector<std::size_t>;

TEST_CASE("hierarchical layout: hosts of equal size, members in any order") {
  const Layout layout = layout_of({0, 1, 0, 1}, 2);
  CHECK(layout.hosts == std::vector<Members>{{0, 2}, {1, 3}});
  CHECK(layout.lanes == 2);
  CHECK(layout.host == 0);
  CHECK(layout.local == 1);
  CHECK(layout.carries());
  CHECK(layout.lane(0) == Members{0, 1});
  CHECK(layout.lane(1) == Members{2, 3});
}

TEST_CASE("hierarchical layout: the smallest host gives the number of lanes") {
  const Layout layout = layout_of({0, 0, 0, 3, 0, 5, 5}, 4);
  CHECK(layout.lanes == 1);
  CHECK(layout.here() == Members{0, 1, 2, 4});
  CHECK(layout.local == 3);
  CHECK_FALSE(layout.carries());
  CHECK(layout.lane(0) == Members{0, 3, 5});
}

TEST_CASE("hierarchical layout: a lane's members ascend, whatever the order of the hosts") {
  const Layout layout = layout_of({0, 1, 1, 0}, 0);
  CHECK(layout.lane(1) == Members{2, 3});
}

TEST_CASE("hierarchical parts: whole cache lines, all elements, nothing without a lane") {
  const Layout layout = layout_of({0, 0, 0, 3, 3}, 0);
  for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 32U, 33U, 1000U, 65537U}) {
    const Members parts = parts_of(layout, count, 4);
    CHECK(parts.size() == 3);
    CHECK(parts[2] == 0);
    CHECK(std::accumulate(parts.begin(), parts.end(), std::size_t{0}) == count);
    CHECK((parts[1] == 0 || parts[0] % 16 == 0));
  }
  CHECK(parts_of(layout, 1000, 4) == Members{512, 488, 0});
}

TEST_CASE("hierarchical pieces hold whole cache lines of every lane") {
  for (const std::size_t lanes : {1U, 2U, 3U, 8U, 100000U}) {
    for (const std::size_t bytes : {1U, 2U, 4U, 8U}) {
      CHECK(piece_elements(kPieceBytes, bytes, lanes) > 0);
      CHECK(piece_elements(kPieceBytes, bytes, lanes) * bytes % (64 * lanes) == 0);
    }
  }
}

TEST_CASE("hierarchical pieces on a device come in one order, whenever the other hosts answer") {
  for (const std::size_t pieces : {1U, 2U, 4U, 5U, 9U, 20U}) {
    std::vector<std::string> orders;
    for (const std::size_t late : {0U, 1U, 3U, 100U}) {
      std::string order;
      std::size_t scattered = 0;
      std::size_t gathered = 0;
      for (std::size_t turn = 0; gathered < pieces; ++turn) {
        REQUIRE(turn < 5000);
        // A piece comes back from the other hosts at most once in `late` + 1 turns.
        const bool back = gathered < scattered && (turn % (late + 1) == 0);
        if (back && may_gather(gathered, pieces, scattered)) {
          order += "g" + std::to_string(gathered++);
        } else if (scattered < pieces && may_scatter(scattered, gathered)) {
          order += "s" + std::to_string(scattered++);
        }
      }
      orders.push_back(order);
    }
    for (const std::string& order : orders) CHECK(order == orders.front());
  }
}

// The backend of one member. It completes each operation at once, and refuses the kind `refused`.
class Stage final : public Backend {
 public:
  Stage(Capabilities can, std::optional<OpKind> refused) : can_(can), refused_(refused) {}
  [[nodiscard]] std::string_view name() const override { return "stage"; }
  [[nodiscard]] const Capabilities& capabilities() const override { return can_; }
  Status start(const Operation& operation, std::uint64_t token) override {
    if (operation.kind == refused_) return {Errc::kUnsupported, "no such dtype between the hosts"};
    ended_.push_back({.token = token, .status = {}});
    return {};
  }
  bool progress() override { return !ended_.empty(); }
  void completed(std::vector<Completed>& out) override {
    out.insert(out.end(), ended_.begin(), ended_.end());
    ended_.clear();
  }
  void abort(const Status&) override {}
  [[nodiscard]] std::optional<EndedLink> lost_peer() const override { return std::nullopt; }
  Result<Memory> stage(Device, std::size_t bytes) override {
    ++staged;
    return Backend::stage({}, bytes);
  }
  static inline int staged = 0;  // how often memory was asked for

 private:
  const Capabilities can_;
  const std::optional<OpKind> refused_;
  std::vector<Completed> ended_;
};

HierarchicalBackend made_of_stages(DeviceType device, std::optional<OpKind> refused = std::nullopt) {
  const Capabilities inside = {.ops = 0xff, .dtypes = 0xff, .devices = 3};
  Parts parts{.device = device, .layout = layout_of({0, 1}, 0), .members = 2, .across = {.ops = 0xf, .dtypes = 0x3}};
  for (auto* part : {&parts.scatter, &parts.between, &parts.gather, &parts.flat}) {
    *part = std::make_unique<Stage>(inside, refused);
  }
  return HierarchicalBackend(std::move(parts));
}

TEST_CASE("hierarchical offers for tensors on GPUs what the backend between the hosts can do with them") {
  CHECK(made_of_stages(DeviceType::kCuda).capabilities().dtypes == 0x3);
  CHECK(made_of_stages(DeviceType::kCuda).capabilities().ops == 0xff);  // others run inside the hosts
  CHECK(made_of_stages(DeviceType::kCpu).capabilities().dtypes == 0x3);
}

// Getting such memory may wait for the device, and work on the device may wait for peers.
TEST_CASE("hierarchical: memory between the hosts and a GPU is had before the first operation") {
  HierarchicalBackend backend = made_of_stages(DeviceType::kCuda);
  Stage::staged = 0;
  std::vector<float> data(3 << 20, 1.0F);  // more pieces than can be under way at once
  auto* const bytes = reinterpret_cast<std::byte*>(data.data());
  const Segment small{.in = bytes, .out = bytes, .count = 100};
  const Segment large{.in = bytes, .out = bytes, .count = data.size()};
  const Device gpu = {.type = DeviceType::kCuda};
  CHECK(backend.start({.device = gpu, .segments = {&small, 1}}, 1).ok());
  const int at_first = Stage::staged;
  CHECK(at_first > 0);
  CHECK(backend.start({.device = gpu, .segments = {&large, 1}}, 2).ok());
  std::vector<Completed> ended;
  for (int turn = 0; turn < 1000 && ended.size() < 2; ++turn) {
    backend.progress();
    backend.completed(ended);
  }
  REQUIRE(ended.size() == 2);
  CHECK(ended.back().status.ok());
  CHECK(Stage::staged == at_first);
}

TEST_CASE("hierarchical: a stage that refuses a piece ends the job, not the tensor") {
  HierarchicalBackend backend = made_of_stages(DeviceType::kCpu, OpKind::kAllreduce);
  std::vector<float> data(100, 1.0F);
  auto* const bytes = reinterpret_cast<std::byte*>(data.data());
  const Segment segment{.in = bytes, .out = bytes, .count = data.size()};
  CHECK(backend.start({.segments = {&segment, 1}}, 1).ok());
  std::vector<Completed> ended;
  for (int turn = 0; turn < 10 && ended.empty(); ++turn) {
    backend.progress();
    backend.completed(ended);
  }
  REQUIRE(ended.size() == 1);
  CHECK(ended.front().status.code() == Errc::kSystem);
  CHECK(ended.front().status.message() == "no such dtype between the hosts");
}

}  // namespace
}  // namespace distrun::backend::hierarchical
