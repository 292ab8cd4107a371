#include "runtime/engine/run/outbox.h"

#include <catch2/catch_test_macros.hpp>

#include "test/support/fake_control_plane.h"

namespace distrun::engine {
namespace {

struct Plane {
  explicit Plane(int size) : group(size) {
    for (int rank = 0; rank < size; ++rank) planes.push_back(group.plane(rank));
  }
  // The frames that have arrived at `rank`.
  std::vector<Frame> frames(int rank) {
    for (const auto& plane : planes) plane->progress();
    std::vector<Frame> all;
    net::Received one;
    while (planes[static_cast<std::size_t>(rank)]->receive(one)) all.push_back(*decode(one.bytes));
    return all;
  }
  test::FakeControlGroup group;
  std::vector<std::unique_ptr<net::ControlPlane>> planes;
};

std::vector<Entry> some_entries(std::size_t count) { return std::vector<Entry>(count, Entry(entry::Left{.rank = 1})); }

TEST_CASE("a member that is gone keeps nothing from the others: the log goes on in one piece") {
  Plane plane(3);
  Outbox outbox(plane.planes[0].get());
  outbox.append(some_entries(2));
  CHECK(outbox.flush().ok());
  plane.group.mark_dead(1);
  outbox.append(some_entries(3));
  outbox.queue(1, message::Ping{});
  outbox.queue(2, message::Ping{});
  CHECK(outbox.flush().code() == Errc::kRankLost);
  outbox.append(some_entries(1));
  CHECK(outbox.flush().code() == Errc::kRankLost);
  const std::vector<Frame> frames = plane.frames(2);
  REQUIRE(frames.size() == 4);
  CHECK(frames[0].index == 0);
  CHECK(frames[1].index == 2);
  CHECK(std::holds_alternative<message::Ping>(frames[2].messages.front()));
  CHECK(frames[3].index == 5);
}

TEST_CASE("what a member said before it read on is not sent as if it had been said after") {
  Plane plane(2);
  Outbox outbox(plane.planes[1].get());
  outbox.set_index(7);
  // More than one frame holds, so that the leader may act between the frames.
  for (int i = 0; i < 1000; ++i) outbox.to_leader().emplace_back(message::Submitted{.name = "x"});
  outbox.to_leader().emplace_back(message::Ready{.ids = {1}});
  outbox.set_index(8);
  CHECK(outbox.flush().ok());
  outbox.to_leader().emplace_back(message::Leaving{});
  CHECK(outbox.flush().ok());
  const std::vector<Frame> frames = plane.frames(0);
  REQUIRE(frames.size() > 2);
  for (std::size_t i = 0; i + 1 < frames.size(); ++i) CHECK(frames[i].index == 7);
  CHECK(frames.back().index == 8);
}

TEST_CASE("what names very many ranks goes in as many frames as it takes", "[one_thread]") {
  Plane plane(2);
  const std::vector<int> ranks(20'000, 1);
  constexpr int kRounds = 60;  // more than one frame can hold
  const Status error(ErrorInfo{.code = Errc::kMismatch, .message = "they differ", .ranks = ranks});
  Outbox leader(plane.planes[0].get());
  for (int i = 0; i < kRounds; ++i) {
    leader.append({entry::Fail{.name = "x", .error = error, .ranks = ranks}, entry::MakeSet{.set = i, .ranks = ranks},
                   entry::EndCall{.result = error, .set = i, .ranks = ranks}});
  }
  CHECK(leader.flush().ok());
  std::size_t entries = 0;
  for (const Frame& frame : plane.frames(1)) {
    CHECK(frame.index == entries);
    entries += std::get<message::Append>(frame.messages.front()).entries.size();
  }
  CHECK(entries == 3 * kRounds);

  Outbox member(plane.planes[1].get());
  const Signature wide{.kind = OpKind::kAlltoall, .shape = {1}, .splits = std::vector<std::int64_t>(1 << 20)};
  for (int i = 0; i < 2; ++i) member.to_leader().emplace_back(message::Submitted{.name = "x", .signature = wide});
  for (int i = 0; i < kRounds; ++i) {
    member.to_leader().emplace_back(message::SetMade{.set = i, .result = error});
    member.to_leader().emplace_back(message::Called{.call = {.ranks = ranks}});
  }
  CHECK(member.flush().ok());
  std::size_t messages = 0;
  for (const Frame& frame : plane.frames(0)) messages += frame.messages.size();
  CHECK(messages == 2 + 2 * kRounds);
}

}  // namespace
}  // namespace distrun::engine
