// The steps of each path, called one by one. All members are in one thread, so the test sees every wait.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "runtime/backend/shm/paths.h"

namespace distrun::backend::shm {
namespace {

constexpr std::size_t kSlotBytes = 1024;

class RingingLink final : public net::HostLink {
 public:
  [[nodiscard]] const std::vector<int>& ranks() const override { return ranks_; }
  Result<net::SharedBytes> share(const std::string&, const std::vector<int>&, std::size_t, TimePoint) override {
    return Status(Errc::kUnsupported, "not here");
  }
  void ring(int rank) override { rung.push_back(rank); }
  void ring_all(std::span<const int> ranks) override { rung.insert(rung.end(), ranks.begin(), ranks.end()); }
  [[nodiscard]] std::optional<int> lost() const override { return std::nullopt; }
  [[nodiscard]] bool gone(int) const override { return false; }
  [[nodiscard]] bool oversubscribed() const override { return false; }
  std::vector<int> rung;

 private:
  std::vector<int> ranks_;
};

// A window and its members, whose world ranks are 10, 11, ... Each member has a row of floats.
struct Group {
  explicit Group(std::size_t size, std::size_t elements, std::size_t out_elements = 0)
      : bytes(Window::bytes_for(size, kSlotBytes)), links(size), in(size), out(size) {
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
    std::memset(memory.get(), 0, bytes);
    std::vector<int> ranks(size);
    std::iota(ranks.begin(), ranks.end(), 10);
    for (std::size_t i = 0; i < size; ++i) {
      members.emplace_back(&links[i], ranks, i, Window({memory.get(), bytes}, size, kSlotBytes));
      in[i].resize(elements);
      std::iota(in[i].begin(), in[i].end(), static_cast<float>(i * 1000));
      out[i].assign(out_elements > 0 ? out_elements : elements, -1.0F);
      segments.push_back({.in = reinterpret_cast<const std::byte*>(in[i].data()),
                          .out = reinterpret_cast<std::byte*>(out[i].data()),
                          .count = elements});
    }
  }
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }  // NOLINT(cppcoreguidelines-no-malloc)
  };
  std::size_t bytes;
  std::unique_ptr<std::byte, Free> memory;
  std::vector<RingingLink> links;
  std::vector<WindowMember> members;
  std::vector<std::vector<float>> in, out;
  std::vector<Segment> segments;
  StorePolicy stores;

  // Member i's part of an operation on `path`.
  WindowTransfer transfer(std::size_t i, Operation operation, Path path, std::uint64_t first = 0) {
    operation.segments = {&segments[i], 1};
    Plan plan = plan_of(operation, members.size(), kSlotBytes);
    plan.path = path;
    if (path != Path::kTiny && plan.chunk_elements == 0) plan.chunk_elements = kSlotBytes / sizeof(float);
    if (path != Path::kTiny) plan.chunks = (plan.elements + plan.chunk_elements - 1) / plan.chunk_elements;
    return {operation, 1, plan, first};
  }

  // Runs the stages of all members until all are done, or no member can go on.
  bool run(std::vector<WindowTransfer>& all) {
    const auto done = [](const WindowTransfer& one) { return one.unpacked == one.plan.chunks; };
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = 0; i < all.size(); ++i) {
        WindowTransfer& one = all[i];
        if (one.packed < one.plan.chunks) moved = one.steps->pack(members[i], stores, one) || moved;
        if (one.reduced < one.plan.chunks) moved = one.steps->reduce(members[i], stores, one) || moved;
        if (!done(one)) moved = one.steps->unpack(members[i], stores, one) || moved;
      }
    }
    return std::ranges::all_of(all, done);
  }
};

std::vector<float> sums(const Group& group, float factor = 1.0F) {
  std::vector<float> total(group.in[0].size());
  for (const auto& one : group.in) {
    for (std::size_t at = 0; at < one.size(); ++at) total[at] += factor * one[at];
  }
  return total;
}

TEST_CASE("every path of an all-reduce adds up, over more chunks than the window has slots") {
  for (const Path path : {Path::kTiny, Path::kOneShot, Path::kTwoPhase, Path::kChain}) {
    for (const double prescale : {1.0, 0.5}) {
      if (path == Path::kChain && prescale != 1.0) continue;  // this path does not scale contributions
      Group group(3, path == Path::kTiny ? 14 : 6 * kSlotBytes / sizeof(float) + 5);
      std::vector<WindowTransfer> all;
      for (std::size_t i = 0; i < 3; ++i) {
        all.push_back(group.transfer(i, {.prescale = prescale}, path, path == Path::kTiny ? 1 : 0));
      }
      REQUIRE(group.run(all));
      for (const auto& out : group.out) CHECK(out == sums(group, static_cast<float>(prescale)));
    }
  }
}

TEST_CASE("a step that must wait changes nothing") {
  Group group(2, 100);
  std::vector<WindowTransfer> all;
  for (std::size_t i = 0; i < 2; ++i) all.push_back(group.transfer(i, {}, Path::kOneShot));
  CHECK_FALSE(all[0].steps->unpack(group.members[0], group.stores, all[0]));
  REQUIRE(all[0].steps->pack(group.members[0], group.stores, all[0]));
  CHECK_FALSE(all[0].steps->unpack(group.members[0], group.stores, all[0]));
  CHECK(all[0].unpacked == 0);
  CHECK(group.out[0] == std::vector<float>(100, -1.0F));
  REQUIRE(group.run(all));
  CHECK(group.out[0] == sums(group));
}

TEST_CASE("a slot is packed again only when all members are done with it") {
  Group group(2, 6 * kSlotBytes / sizeof(float));
  std::vector<WindowTransfer> all;
  for (std::size_t i = 0; i < 2; ++i) all.push_back(group.transfer(i, {}, Path::kOneShot));
  const auto pack = [&](std::size_t i) { return all[i].steps->pack(group.members[i], group.stores, all[i]); };
  const auto unpack = [&](std::size_t i) { return all[i].steps->unpack(group.members[i], group.stores, all[i]); };
  for (std::uint64_t chunk = 0; chunk < kSlots; ++chunk) REQUIRE(pack(0));
  CHECK_FALSE(pack(0));
  REQUIRE(pack(1));
  REQUIRE(unpack(0));
  CHECK_FALSE(pack(0));
  REQUIRE(unpack(1));
  CHECK(pack(0));
}

TEST_CASE("a broadcast reads the root's slot, and its bell wakes all others") {
  Group group(3, 300);
  std::vector<WindowTransfer> all;
  for (std::size_t i = 0; i < 3; ++i) {
    all.push_back(group.transfer(i, {.kind = OpKind::kBroadcast, .root = 1}, Path::kBroadcast));
  }
  CHECK_FALSE(all[0].steps->unpack(group.members[0], group.stores, all[0]));
  REQUIRE(all[1].steps->pack(group.members[1], group.stores, all[1]));
  CHECK(group.links[1].rung == std::vector<int>{10, 12});
  REQUIRE(group.run(all));
  for (const auto& out : group.out) CHECK(out == group.in[1]);
}

TEST_CASE("a chain wakes the next member, and the last one wakes all") {
  Group group(3, 20);
  std::vector<WindowTransfer> all;
  for (std::size_t i = 0; i < 3; ++i) all.push_back(group.transfer(i, {}, Path::kChain));
  const auto pack = [&](std::size_t i) { return all[i].steps->pack(group.members[i], group.stores, all[i]); };
  CHECK_FALSE(pack(1));
  REQUIRE(pack(0));
  CHECK(group.links[0].rung == std::vector<int>{11});
  CHECK_FALSE(pack(2));
  REQUIRE(pack(1));
  REQUIRE(pack(2));
  CHECK(group.links[2].rung == std::vector<int>{10, 11});
}

TEST_CASE("an all-gather puts blocks of different length in the members' order") {
  constexpr std::size_t kLong = 700;
  const std::vector<std::size_t> counts = {kLong, 0, 3};
  Group group(3, kLong, kLong + 3);
  std::vector<WindowTransfer> all;
  for (std::size_t i = 0; i < 3; ++i) {
    group.segments[i].count = counts[i];
    all.push_back(group.transfer(i, {.kind = OpKind::kAllgather, .counts = counts}, Path::kAllgather));
  }
  REQUIRE(group.run(all));
  std::vector<float> expected = group.in[0];
  expected.insert(expected.end(), group.in[2].begin(), group.in[2].begin() + 3);
  for (const auto& out : group.out) CHECK(out == expected);
}

TEST_CASE("a reduce-scatter leaves each member the sum of its own part") {
  const std::vector<std::size_t> counts = {400, 0, 250};
  Group group(3, 650, 400);
  std::vector<WindowTransfer> all;
  for (std::size_t i = 0; i < 3; ++i) {
    all.push_back(
        group.transfer(i, {.kind = OpKind::kReducescatter, .postscale = 2.0, .counts = counts}, Path::kScatter));
  }
  REQUIRE(group.run(all));
  std::vector<float> total = sums(group);
  for (float& value : total) value *= 2.0F;
  CHECK(std::equal(total.begin(), total.begin() + 400, group.out[0].begin()));
  CHECK(std::equal(total.begin() + 400, total.end(), group.out[2].begin()));
  CHECK(group.out[1] == std::vector<float>(400, -1.0F));
}

TEST_CASE("an all-to-all gives each member its block of everybody") {
  // Row i: the elements that member i sends to each member.
  const std::vector<std::size_t> counts = {2, 300, 1, 4};
  Group group(2, 302, 304);
  std::vector<WindowTransfer> all;
  for (std::size_t i = 0; i < 2; ++i) {
    all.push_back(group.transfer(i, {.kind = OpKind::kAlltoall, .counts = counts}, Path::kExchange));
  }
  REQUIRE(group.run(all));
  CHECK(std::equal(group.in[0].begin(), group.in[0].begin() + 2, group.out[0].begin()));
  CHECK(group.out[0][2] == group.in[1][0]);
  CHECK(std::equal(group.in[0].begin() + 2, group.in[0].begin() + 302, group.out[1].begin()));
}

TEST_CASE("small chunks are written through the cache, and chunks of both sizes are counted apart") {
  const auto made = [](std::size_t elements) {
    const std::vector<Segment> segments = {{.count = elements}};
    const Operation operation{.segments = segments};
    return WindowTransfer(operation, 1, plan_of(operation, 2, 256 << 10), 0);
  };
  StorePolicy stores;
  WindowTransfer tiny = made(1), small = made(2 << 10), large = made(1 << 20), next = made(2 << 10);
  for (WindowTransfer* one : {&tiny, &small, &large, &next}) stores.admit(*one);
  CHECK(tiny.stores == -1);
  CHECK_FALSE(stores.streams(tiny, 0));
  CHECK(small.stores == 0);
  CHECK(large.stores == 1);
  CHECK(large.first_tried == 0);
  CHECK(next.first_tried == small.plan.chunks);
  // The groups of a trial alternate.
  CHECK_FALSE(stores.streams(large, 0));
  CHECK(stores.streams(large, StoreChoice::kGroup));
}

}  // namespace
}  // namespace distrun::backend::shm
