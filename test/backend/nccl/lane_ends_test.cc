// How the work of a lane ends after failures, aborts and members that leave.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

#include "runtime/backend/nccl/group.h"
#include "test/backend/nccl/lane_rig.h"

namespace distrun::backend::nccl_plugin {
namespace {

TEST_CASE("nccl: a peer that never comes is an error when the engine says so, and the memory is free then", "[nccl]") {
  Rig rig(2);
  std::vector<Op> ops = {};
  ops.reserve(2);
  ops.push_back(sum_of({1}));
  ops.push_back(sum_of({1}));
  for (std::size_t i = 0; i < 2; ++i) rig.lanes[i]->submit(rig.members[i]->lane_group, ops[i].raw, 1);
  rig.turn_all();
  Op alone = sum_of({1, 2});
  Op later = sum_of({3});
  rig.lanes[0]->submit(rig.members[0]->lane_group, alone.raw, 2);
  rig.turn_all();
  CHECK(rig.members[0]->outcome(2) == "in flight");
  rig.lanes[0]->submit(rig.members[0]->lane_group, later.raw, 3);
  fake::forget_calls();
  fake::hold(true);
  rig.members[0]->lane_group.aborted.set(DISTRUN_BACKEND_RANK_LOST, "rank 1 on b was killed");
  rig.turn_all(3);
  CHECK(fake::calls_of({"ncclCommAbort"}) == "ncclCommAbort");
  CHECK(rig.members[0]->outcome(2) == "in flight");  // the device still has it
  fake::hold(false);
  rig.turn_all(3);
  CHECK(rig.members[0]->outcome(2) == "rank 1 on b was killed");
  CHECK(rig.members[0]->outcome(3) == "rank 1 on b was killed");
}

TEST_CASE("nccl: all that stands still on a GPU is taken back at once: none is freed while another is there",
          "[nccl]") {
  Rig rig(2, 20, GENERATE(fake::kNewNccl, 21800));
  plugin::HostStore other(rig.memory, "other/");
  std::vector<std::unique_ptr<Member>> others;
  std::vector<Op> ops;
  ops.reserve(6);
  for (int lane = 0; lane < 2; ++lane) others.push_back(rig.add(other, lane, lane, 2));
  const auto submit = [&](std::size_t lane, Member& member, std::uint64_t token) {
    ops.push_back(sum_of({1}));
    rig.lanes[lane]->submit(member.lane_group, ops.back().raw, token);
  };
  for (std::size_t lane = 0; lane < 2; ++lane) {
    submit(lane, *rig.members[lane], 1);
    submit(lane, *others[lane], 1);
  }
  rig.turn_all();
  submit(0, *rig.members[0], 2);
  submit(0, *others[0], 2);
  rig.turn_all();
  CHECK(others[0]->outcome(1) == "ok");
  CHECK(others[0]->outcome(2) == "in flight");
  fake::forget_calls();
  rig.members[0]->lane_group.aborted.set(DISTRUN_BACKEND_RANK_LOST, "rank 1 on b was killed");
  rig.turn_all(3);
  CHECK(fake::calls_of({"ncclCommAbort"}) == "ncclCommAbort; ncclCommAbort");
  CHECK(rig.members[0]->outcome(2) == "rank 1 on b was killed");
  CHECK(others[0]->outcome(2) == "rank 1 on b was killed");
}

TEST_CASE("nccl: a communicator is made and freed while nothing is on the GPU", "[nccl]") {
  Rig rig(1);
  plugin::HostStore other(rig.memory, "other/");
  auto second = rig.add(other, 0, 0, 1);
  const std::vector<std::string> calls = {"ncclCommInitRankConfig", "ncclCommFinalize", "ncclCommDestroy"};
  std::vector<Op> ops;
  ops.reserve(4);
  const auto submit = [&](Member& member, std::uint64_t token) {
    ops.push_back(sum_of({1}));
    rig.lanes[0]->submit(member.lane_group, ops.back().raw, token);
  };
  submit(*rig.members[0], 1);
  rig.turn_all();
  fake::forget_calls();
  fake::hold(true);
  submit(*rig.members[0], 2);
  submit(*second, 1);
  rig.turn_all();
  CHECK(rig.turn(0) == Lane::Next::kWatch);
  CHECK(fake::calls_of(calls).empty());
  fake::run();
  rig.turn_all();
  CHECK(fake::calls_of(calls) == "ncclCommInitRankConfig 0 of 1");
  fake::run();
  rig.turn_all();
  CHECK(second->outcome(1) == "ok");
  fake::forget_calls();
  submit(*rig.members[0], 3);
  rig.turn_all();
  CHECK(ready(rig.lanes[0]->leave(second->owned)));
  rig.turn_all();
  CHECK(fake::calls_of(calls) == "ncclCommFinalize");
  fake::run();
  rig.turn_all();
  CHECK(fake::calls_of(calls) == "ncclCommFinalize; ncclCommDestroy");
  CHECK(rig.members[0]->outcome(3) == "ok");
  fake::hold(false);
}

TEST_CASE("nccl: an abort ends the wait for members that do not connect", "[nccl]") {
  Rig rig(2);
  for (const int index : {0, 1}) {
    Op op = sum_of({1});
    const auto lane = static_cast<std::size_t>(index);
    plugin::HostStore other(rig.memory, "other" + std::to_string(index) + "/");
    auto member = rig.add(other, index, index, 2);
    rig.lanes[lane]->submit(member->lane_group, op.raw, 1);
    CHECK(rig.turn(index) == Lane::Next::kSoon);
    member->lane_group.aborted.set(DISTRUN_BACKEND_ABORTED, "the job was aborted");
    rig.turn_all(2);
    CHECK(member->outcome(1) == "the job was aborted");
  }
}

TEST_CASE("nccl: members that do not connect in time are an error", "[nccl]") {
  Rig rig(2, 0.01);
  Op op = sum_of({1});
  Op other = sum_of({1});
  rig.lanes[1]->submit(rig.members[1]->lane_group, op.raw, 1);
  while (!rig.members[1]->done(1)) rig.turn(1);
  CHECK(rig.members[1]->record.done.at(1).code() == Errc::kTimeout);
  CHECK(rig.members[1]->outcome(1).find("did not send the id of the communicator within") != std::string::npos);
  rig.lanes[0]->submit(rig.members[0]->lane_group, other.raw, 1);
  while (!rig.members[0]->done(1)) rig.turn(0);
  CHECK(rig.members[0]->outcome(1).find("did not connect within") != std::string::npos);
}

TEST_CASE("nccl: an error that NCCL tells of only when asked is found by watching", "[nccl]") {
  Rig rig(2);
  std::vector<Op> ops;
  ops.reserve(2);
  for (int i = 0; i < 2; ++i) ops.push_back(sum_of({1}));
  rig.lanes[0]->submit(rig.members[0]->lane_group, ops[0].raw, 1);
  rig.lanes[1]->submit(rig.members[1]->lane_group, ops[1].raw, 1);
  fake::hold(true);
  rig.turn_all();
  CHECK(rig.turn(0) == Lane::Next::kWatch);
  fake::break_communicators(6);
  rig.turn_all(2);
  CHECK(fake::calls_of({"ncclCommAbort"}) == "ncclCommAbort; ncclCommAbort");
  CHECK_FALSE(rig.members[0]->done(1));
  fake::hold(false);
  rig.turn_all(2);
  CHECK(rig.members[0]->outcome(1) ==
        "nccl: the communicator failed: unhandled cuda error (the last warning). NCCL_DEBUG=WARN shows more");
  CHECK(rig.members[0]->record.done.at(1).code() == Errc::kSystem);
}

TEST_CASE("nccl: whatever call fails, every token ends once and the group goes on failing", "[nccl]") {
  const std::string symbol = GENERATE(as<std::string>(), "cuStreamWaitEvent", "cuLaunchKernel", "cuMemAllocAsync",
                                      "cuEventRecord", "cuEventCreate", "cuEventQuery", "ncclAllReduce",
                                      "ncclCommInitRankConfig", "ncclGetUniqueId", "ncclCommGetAsyncError");
  INFO(symbol);
  Rig rig(1);
  Gpu& gpu = rig.lanes[0]->gpu();
  auto mark = gpu.mark(nullptr);
  REQUIRE(mark.ok());
  fake::forget_calls();
  fake::fail(symbol, 1);
  Op op(DISTRUN_BACKEND_ALLREDUCE, {{1}, {2}});
  op.after(**mark);
  Op next = sum_of({1});
  rig.lanes[0]->submit(rig.members[0]->lane_group, op.raw, 1);
  rig.lanes[0]->submit(rig.members[0]->lane_group, next.raw, 2);
  rig.turn_all(30);
  CHECK(rig.members[0]->outcome(1) != "ok");
  CHECK(rig.members[0]->outcome(1) != "in flight");
  CHECK(rig.members[0]->outcome(2) == rig.members[0]->outcome(1));
  gpu.unmark(*std::move(mark));
}

// A group of two that has completed one operation.
struct ConnectedPair : Rig {
  ConnectedPair() : Rig(2) {
    std::vector<Op> ops;
    ops.reserve(2);
    for (int i = 0; i < 2; ++i) ops.push_back(sum_of({1}));
    for (std::size_t i = 0; i < 2; ++i) lanes[i]->submit(members[i]->lane_group, ops[i].raw, 1);
    turn_all();
  }
};

TEST_CASE("nccl: a member may leave at once, and its communicator closes when its peers close theirs", "[nccl]") {
  ConnectedPair rig;
  CHECK(ready(rig.lanes[0]->leave(rig.members[0]->owned)));
  rig.turn_all(50);
  CHECK(rig.turn(0) == Lane::Next::kWatch);
  CHECK(fake::calls_of({"ncclCommFinalize", "ncclCommDestroy", "ncclCommAbort"}) == "ncclCommFinalize");
  CHECK(ready(rig.lanes[1]->leave(rig.members[1]->owned)));
  rig.turn_all(3);
  CHECK(rig.turn(0) == Lane::Next::kWhenRung);
  CHECK(fake::calls_of({"ncclCommFinalize", "ncclCommDestroy", "ncclCommAbort"}) ==
        "ncclCommFinalize; ncclCommFinalize; ncclCommDestroy; ncclCommDestroy");
}

TEST_CASE("nccl: who has left is not waited for when the job has failed, nor after the session's end", "[nccl]") {
  ConnectedPair rig;
  CHECK(ready(rig.lanes[0]->leave(rig.members[0]->owned)));
  const std::future<void> closed = rig.lanes[0]->close_all(deadline_after(1000));
  rig.turn_all(3);
  CHECK_FALSE(ready(closed));
  SECTION("failed") { rig.lanes[0]->give_up(); }
  SECTION("the end") { CHECK_FALSE(ready(rig.lanes[0]->close_all(Clock::now()))); }
  rig.turn_all(1);
  CHECK(ready(closed));
  CHECK(fake::calls_of({"ncclCommAbort", "ncclCommDestroy"}) == "ncclCommAbort");
  CHECK(rig.turn(0) == Lane::Next::kWhenRung);
}

TEST_CASE("nccl: removing a set waits for no peer; the last group of the process closes all in good order", "[nccl]") {
  fake::reset();
  Lanes lanes(fake::libraries(), "image");
  test::FakeStore memory;
  const plugin::HostStore store(memory, "group/");
  const std::vector<int> ranks = {0, 1};
  std::vector<std::unique_ptr<plugin::HostGroup>> hosts;
  std::vector<std::unique_ptr<NcclGroup>> groups;
  std::vector<Op> ops;
  ops.reserve(2);
  for (const int rank : ranks) {
    hosts.push_back(std::make_unique<plugin::HostGroup>(nullptr, true, nullptr, "nccl", "group"));
    const distrun_backend_group_spec spec = {.struct_size = sizeof(spec),
                                             .index = rank,
                                             .members = ranks.data(),
                                             .num_members = ranks.size(),
                                             .id = "group",
                                             .local_host = "",
                                             .seconds = 20,
                                             .store = &store.table()};
    groups.push_back(
        std::make_unique<NcclGroup>(lanes, spec, plugin::Host(&plugin::host_table(), hosts.back()->handle())));
    ops.push_back(sum_of({1}));
    ops.back().raw.device_index = rank;
    hosts.back()->expect(1);
    groups.back()->start(ops.back().raw, 1);
  }
  const TimePoint limit = deadline_after(20);
  for (const auto& host : hosts) {
    while (!host->any_completed() && Clock::now() < limit) std::this_thread::yield();
  }
  groups[0].reset();
  CHECK(fake::calls_of({"ncclCommAbort", "ncclCommDestroy"}).empty());
  groups[1].reset();
  CHECK(fake::calls_of({"ncclCommAbort", "ncclCommDestroy"}) == "ncclCommDestroy; ncclCommDestroy");
  CHECK(ops[0].data[0][0] == 2);
  CHECK(fake::faults().empty());
}

TEST_CASE("nccl: leaving with operations in flight takes them back first", "[nccl]") {
  Rig rig(2);
  std::vector<Op> ops;
  ops.reserve(3);
  for (int i = 0; i < 3; ++i) ops.push_back(sum_of({1}));
  for (std::size_t i = 0; i < 2; ++i) rig.lanes[i]->submit(rig.members[i]->lane_group, ops[i].raw, 1);
  rig.turn_all();
  rig.lanes[0]->submit(rig.members[0]->lane_group, ops[2].raw, 2);
  rig.turn_all();
  const std::future<void> left = rig.lanes[0]->leave(rig.members[0]->owned);
  CHECK_FALSE(ready(left));
  rig.turn_all(3);
  CHECK(ready(left));
  CHECK(rig.members[0]->outcome(2) == "the group was closed");
  CHECK(fake::calls_of({"ncclCommAbort", "ncclCommDestroy"}) == "ncclCommAbort");
}

}  // namespace
}  // namespace distrun::backend::nccl_plugin
