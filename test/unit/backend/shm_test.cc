#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/backend/kernels/copy.h"
#include "runtime/backend/shm/shm_factory.h"
#include "runtime/backend/shm/store_choice.h"
#include "runtime/backend/shm/transfer.h"
#include "runtime/backend/shm/window.h"
#include "runtime/base/settings.h"
#include "test/support/fake_host_link.h"

namespace distrun::backend::shm {
namespace {

constexpr std::size_t kSlot = 4096;

Operation allreduce_of(const std::vector<Segment>& segments, DType dtype = DType::kF32) {
  return {.dtype = dtype, .segments = segments};
}

// Counts rings instead of waking a rank. It has no memory.
class CountingLink final : public net::HostLink {
 public:
  explicit CountingLink(std::size_t ranks = 0) : ranks_(ranks) { std::iota(ranks_.begin(), ranks_.end(), 0); }
  [[nodiscard]] const std::vector<int>& ranks() const override { return ranks_; }
  Result<net::SharedBytes> share(const std::string&, const std::vector<int>&, std::size_t bytes, TimePoint) override {
    asked = bytes;
    return Status(Errc::kUnsupported, "not here");
  }
  void ring(int) override { ++rings; }
  void ring_all(std::span<const int> world_ranks) override { rings += static_cast<int>(world_ranks.size()); }
  [[nodiscard]] std::optional<int> lost() const override { return std::nullopt; }
  [[nodiscard]] bool gone(int) const override { return false; }
  [[nodiscard]] bool oversubscribed() const override { return false; }
  int rings = 0;
  std::size_t asked = 0;  // bytes of memory that were asked for

 private:
  std::vector<int> ranks_;
};

struct Memory {
  explicit Memory(std::size_t members) : bytes(Window::bytes_for(members, kSlot)) {
    data.reset(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
    std::memset(data.get(), 0, bytes);
  }
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }  // NOLINT(cppcoreguidelines-no-malloc)
  };
  std::size_t bytes;
  std::unique_ptr<std::byte, Free> data;
};

}  // namespace

TEST_CASE("shm plan: the path depends on kind, payload and group") {
  std::vector<Segment> segments = {{.count = 14}};
  CHECK(plan_of(allreduce_of(segments), 2, kSlot).path == Path::kTiny);
  segments[0].count = 15;
  CHECK(plan_of(allreduce_of(segments), 2, kSlot).path == Path::kOneShot);
  CHECK(plan_of(allreduce_of(segments), 8, kSlot).path == Path::kOneShot);
  segments[0].count = 1 << 20;
  CHECK(plan_of(allreduce_of(segments), 2, kSlot).path == Path::kOneShot);
  CHECK(plan_of(allreduce_of(segments), 3, kSlot).path == Path::kTwoPhase);
  CHECK(plan_of(allreduce_of({}), 3, kSlot).path == Path::kNothing);
  constexpr bool kCrowded = true;
  CHECK(plan_of(allreduce_of(segments), 3, kSlot, kCrowded).path == Path::kChain);
  CHECK(plan_of(allreduce_of(segments), 2, kSlot, kCrowded).path == Path::kOneShot);
  CHECK(plan_of(allreduce_of(segments, DType::kBF16), 3, kSlot, kCrowded).path == Path::kTwoPhase);
  Operation scaled = allreduce_of(segments);
  scaled.prescale = 0.5;
  CHECK(plan_of(scaled, 3, kSlot, kCrowded).path == Path::kTwoPhase);
  CHECK(plan_of({.kind = OpKind::kBarrier}, 3, kSlot).path == Path::kTiny);
  const std::vector<std::size_t> counts = {0, 3000, 1};
  const Plan gather = plan_of({.kind = OpKind::kAllgather, .segments = segments, .counts = counts}, 3, kSlot);
  CHECK(gather.path == Path::kAllgather);
  CHECK(gather.elements == 3000);
}

TEST_CASE("shm plan: chunks cover all elements and fit a slot, beyond 4 GiB too") {
  for (const DType dtype : {DType::kU8, DType::kF16, DType::kF64}) {
    for (const std::size_t slot : {4096UL, 262144UL}) {
      for (const std::size_t count : {100UL, 4096UL, 4097UL, 1000000UL, (5UL << 30) + 3}) {
        const std::vector<Segment> segments = {{.count = count}};
        const Plan plan = plan_of(allreduce_of(segments, dtype), 2, slot);
        CHECK(plan.chunk_elements * size_of(dtype) <= slot);
        CHECK(plan.chunks * plan.chunk_elements >= count);
        CHECK((plan.chunks - 1) * plan.chunk_elements < count);
        const WindowTransfer transfer(allreduce_of(segments, dtype), 1, plan, 0);
        CHECK(transfer.elements_of(plan.chunks - 1) == count - (plan.chunks - 1) * plan.chunk_elements);
      }
    }
  }
}

TEST_CASE("shm plan: a slot has room for a piece of every member, however many there are") {
  CHECK(slot_bytes_of(4096, 64) == 4096);
  CHECK(slot_bytes_of(4100, 2) == 4096);
  for (const std::size_t members : {65UL, 1000UL}) {
    const std::size_t slot = slot_bytes_of(4096, members);
    const std::vector<std::size_t> counts(members, 100);
    for (const OpKind kind : {OpKind::kReducescatter, OpKind::kAlltoall}) {
      const Plan plan = plan_of({.kind = kind, .dtype = DType::kF64, .counts = counts}, members, slot);
      CHECK(plan.chunks * plan.chunk_elements >= 100);
      CHECK(plan.chunk_elements * sizeof(double) * members <= slot);
    }
  }
}

TEST_CASE("shm parts: cover a chunk without overlap, in whole cache lines") {
  for (const std::size_t elements : {1UL, 15UL, 16UL, 17UL, 1000UL, 65536UL}) {
    for (const std::size_t members : {1UL, 3UL, 8UL, 64UL}) {
      std::size_t at = 0;
      for (std::size_t p = 0; p < members; ++p) {
        const Range part = part_of(elements, 4, p, members);
        CHECK(part.begin == at);
        CHECK((part.count() == 0 || part.begin % 16 == 0));
        at = part.end;
      }
      CHECK(at == elements);
    }
  }
}

TEST_CASE("shm cursor: walks across segments, empty ones included") {
  const std::vector<Segment> segments = {{.count = 0}, {.count = 5}, {.count = 0}, {.count = 2}, {.count = 0}};
  SegmentCursor cursor(segments);
  std::string walked;
  const auto note = [&](const Segment& segment, std::size_t offset, std::size_t count) {
    walked +=
        std::to_string(&segment - segments.data()) + "@" + std::to_string(offset) + "+" + std::to_string(count) + " ";
  };
  cursor.advance(3, note);
  cursor.advance(3, note);
  cursor.advance(0, note);
  cursor.advance(1, note);
  CHECK(walked == "1@0+3 1@3+2 3@0+1 3@1+1 ");
}

TEST_CASE("shm tally: rings only when the slowest member has moved") {
  Memory memory(3);
  const Window window({memory.data.get(), memory.bytes}, 3, kSlot);
  std::vector<CountingLink> links(3);
  std::vector<CounterView> tallies;
  std::vector<Bells> bells;
  for (std::size_t i = 0; i < 3; ++i) {
    tallies.emplace_back(window, &MemberLines::ready, i);
    bells.emplace_back(&links[i], std::vector<int>{7, 8});
  }
  tallies[0].publish(1, bells[0]);
  tallies[0].publish(2, bells[0]);
  tallies[1].publish(1, bells[1]);
  CHECK(links[0].rings == 0);
  CHECK(links[1].rings == 0);
  CHECK_FALSE(tallies[0].all_reached(1));
  tallies[2].publish(1, bells[2]);  // the last one: now all members have 1
  CHECK(links[2].rings == 2);
  CHECK(tallies[0].all_reached(1));
  CHECK_FALSE(tallies[0].all_reached(2));
  CHECK(tallies[1].reached(0, 2));
  tallies[2].publish(5, bells[2]);
  CHECK(links[2].rings == 2);
  tallies[1].publish(4, bells[1]);  // raises the minimum from 1 to 2
  CHECK(links[1].rings == 2);
  CHECK(tallies[2].all_reached(2));
}

TEST_CASE("shm stores: the cheaper kind is found, again when the machine changes, in spite of interruptions") {
  StoreChoice choice;
  std::uint64_t n = 0;
  // Runs one period. Streaming costs `streamed` per byte, and storing through the cache costs `cached`.
  const auto period = [&](double cached, double streamed) {
    for (std::uint64_t end = n + StoreChoice::kPeriod; n < end; ++n) {
      if (!StoreChoice::in_trial(n)) continue;
      const bool interrupted = n % StoreChoice::kTrial < 3 * StoreChoice::kGroup;  // the first three groups
      const double cost = (choice.streams(n) ? streamed : cached) * (interrupted ? 1000 : 1);
      choice.add(n, 100, cost * 60);
      choice.add(n, 0, cost * 40);
      choice.finished(n);
    }
  };
  CHECK(choice.streams());
  period(1.0, 2.0);
  CHECK_FALSE(choice.streams());
  CHECK_FALSE(choice.streams(n - 1));
  period(5.0, 1.0);
  CHECK(choice.streams());
  // Both ways of storing alternate in a trial, whatever was chosen.
  CHECK_FALSE(choice.streams(n));
  CHECK(choice.streams(n + StoreChoice::kGroup));
}

TEST_CASE("copies, past the caches or not: every size at every offset, and nothing else") {
  std::vector<std::byte> from(5000), to(5000 + 128);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const std::size_t bytes : {0UL, 1UL, 63UL, 1023UL, 1024UL, 1025UL, 4096UL, 4999UL}) {
    for (const std::size_t offset : {0UL, 1UL, 16UL, 63UL}) {
      for (const auto copy : {kernels::copy, kernels::stream_copy}) {
        std::fill(to.begin(), to.end(), std::byte{0xee});
        copy(to.data() + offset, from.data(), bytes);
        CHECK(std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(bytes), to.data() + offset));
        CHECK(std::count(to.data(), to.data() + offset, std::byte{0xee}) == static_cast<std::ptrdiff_t>(offset));
        const auto rest = to.size() - offset - bytes;
        CHECK(std::count(to.data() + offset + bytes, to.data() + to.size(), std::byte{0xee}) ==
              static_cast<std::ptrdiff_t>(rest));
      }
    }
  }
}

// Here memcpy() is slow on some processors, so copy() works differently.
TEST_CASE("copies to a place within a page that closely follows the source's: every size, and nothing else") {
  constexpr std::size_t kPage = 4096;
  std::vector<std::byte> from_memory(4 * kPage), to_memory(4 * kPage);
  const auto page_of = [](std::vector<std::byte>& memory) {
    return memory.data() + (kPage - reinterpret_cast<std::uintptr_t>(memory.data()) % kPage) % kPage;
  };
  for (std::size_t i = 0; i < from_memory.size(); ++i) from_memory[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const std::size_t at : {0UL, 5UL, 16UL, 63UL}) {
    for (const std::size_t behind : {1UL, 16UL, 32UL, 63UL, 64UL}) {
      for (const std::size_t bytes : {1023UL, 1024UL, 1087UL, 1088UL, 1151UL, 4096UL, 6001UL}) {
        std::fill(to_memory.begin(), to_memory.end(), std::byte{0xee});
        const std::byte* from = page_of(from_memory) + at;
        std::byte* to = page_of(to_memory) + at + behind;
        kernels::copy(to, from, bytes);
        CHECK(std::equal(from, from + bytes, to));
        CHECK(std::count(to_memory.data(), to, std::byte{0xee}) == to - to_memory.data());
        const std::byte* end = to_memory.data() + to_memory.size();
        CHECK(std::count(static_cast<const std::byte*>(to) + bytes, end, std::byte{0xee}) == end - (to + bytes));
      }
    }
  }
}

TEST_CASE("shm factory: says why it cannot serve") {
  const auto factory = make_shm_factory();
  const GroupSpec pair = {.id = "0", .members = {0, 3}, .index = 0};
  const Offer none = factory->offer(pair, {.host_link_error = "memfd_create: not permitted (errno 1)"});
  CHECK_FALSE(none.available);
  CHECK(none.score == 0);
  CHECK(none.reason == "memfd_create: not permitted (errno 1)");
  CHECK_FALSE(factory->offer(pair, {}).reason.empty());

  test::FakeHost host(2);
  const auto link = host.link(0, nullptr);
  const Offer elsewhere = factory->offer(pair, {.host_link = link.get()});
  CHECK_FALSE(elsewhere.available);
  CHECK(elsewhere.reason == "rank 3 is not on this host");
  GroupSpec many = {.id = "0", .members = std::vector<int>(4096), .index = 0};
  std::iota(many.members.begin(), many.members.end(), 0);
  CHECK(factory->offer(many, {.host_link = link.get()}).reason == "ranks 2, 3 and 4092 more are not on this host");
  many.members.resize(6);
  CHECK(factory->offer(many, {.host_link = link.get()}).reason == "ranks 2, 3, 4, 5 are not on this host");
  const auto refused = factory->create(pair, {.host_link = link.get()}, deadline_after(1));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code() == Errc::kUnsupported);

  const Offer here = factory->offer({.id = "0", .members = {0, 1}, .index = 0}, {.host_link = link.get()});
  CHECK(here.available);
  CHECK(here.score == 80);
  CHECK(here.capabilities.moved_by == MovedBy::kMemory);
}

TEST_CASE("shm factory: the windows of a large group have slots that are large enough") {
  CountingLink link(65);
  const Settings settings = {.shm_window = 4096};
  const GroupSpec group = {.id = "0", .members = link.ranks(), .index = 0};
  CHECK_FALSE(make_shm_factory()->create(group, {.settings = &settings, .host_link = &link}, deadline_after(1)).ok());
  CHECK(link.asked == Window::bytes_for(65, slot_bytes_of(4096, 65)));
}

TEST_CASE("shm factory: refused memory is an error, with its reason") {
  test::FakeHost host(1, {.share_error = "fallocate: No space left on device (errno 28)"});
  const auto link = host.link(0, nullptr);
  const auto made =
      make_shm_factory()->create({.id = "5", .members = {0}, .index = 0}, {.host_link = link.get()}, deadline_after(1));
  REQUIRE_FALSE(made.ok());
  CHECK(made.status().message().find("No space left") != std::string::npos);
  CHECK(made.status().message().find("group 5") != std::string::npos);
}

}  // namespace distrun::backend::shm
