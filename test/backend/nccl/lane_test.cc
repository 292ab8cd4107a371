// Lanes over the fake: the order of calls, streams and events.
#include "runtime/backend/nccl/lane.h"

#include <poll.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <functional>
#include <vector>

#include "test/backend/nccl/lane_rig.h"

namespace distrun::backend::nccl_plugin {
namespace {

const std::vector<std::string> kWork = {"cuStreamWaitEvent", "cuLaunchKernel",   "ncclAllReduce",
                                        "cuEventRecord",     "cuLaunchHostFunc", "ncclReduceScatter",
                                        "ncclReduce",        "ncclGroupStart",   "ncclGroupEnd"};

bool bell_rings(const Lane& lane) {
  pollfd bell = {.fd = const_cast<Lane&>(lane).gpu().bell(), .events = POLLIN, .revents = 0};
  return ::poll(&bell, 1, 0) == 1;
}

TEST_CASE("nccl: one tensor goes to NCCL as it is, behind the caller's stream and before an event", "[nccl]") {
  Rig rig(1);
  Gpu& gpu = rig.lanes[0]->gpu();
  auto mark = gpu.mark(nullptr);
  REQUIRE(mark.ok());
  Op op = sum_of({1, 2, 3, 4});
  op.after(**mark);
  rig.lanes[0]->submit(rig.members[0]->lane_group, op.raw, 1);
  rig.turn_all();
  // s0: the caller's stream; s1: ours; s2: only reports that s1 has reached this point.
  CHECK(fake::calls_of(kWork) ==
        "cuEventRecord s0; cuStreamWaitEvent s1; ncclAllReduce 4 float32 sum; cuEventRecord s1; cuStreamWaitEvent s2; "
        "cuLaunchHostFunc s2");
  CHECK(rig.members[0]->outcome(1) == "ok");
  gpu.unmark(*std::move(mark));
}

TEST_CASE("nccl: the streams do not wait for the legacy default stream, and events measure nothing", "[nccl]") {
  fake::reset();
  const Libraries libraries = fake::libraries();
  const auto gpu = Gpu::open(libraries.cuda, 0, "image");
  REQUIRE(gpu.ok());
  CHECK(fake::calls_of({"cuStreamCreate"}) == "cuStreamCreate non-blocking; cuStreamCreate non-blocking");
  fake::forget_calls();
  auto mark = (*gpu)->mark(nullptr);
  REQUIRE(mark.ok());
  CHECK(fake::calls_of({"cuEventCreate"}) == "cuEventCreate");
  (*gpu)->unmark(*std::move(mark));
}

TEST_CASE("nccl: what a caller's stream still has to do comes first", "[nccl]") {
  Rig rig(1);
  Gpu& gpu = rig.lanes[0]->gpu();
  const CudaApi& cuda = rig.libraries.cuda;
  CuStream callers = nullptr;
  fake::hold(true);
  Op op = sum_of({1});
  {
    const Current scope = gpu.current();
    REQUIRE(cuda.stream_create(&callers, kCuStreamNonBlocking) == kCuSuccess);
    cuda.launch_host_function(
        callers, [](void* data) { *static_cast<float*>(data) = 7; }, op.data[0].data());
  }
  auto mark = gpu.mark(callers);
  REQUIRE(mark.ok());
  op.after(**mark);
  op.raw.reduce = DISTRUN_BACKEND_AVERAGE;
  op.raw.prescale = 2;
  rig.lanes[0]->submit(rig.members[0]->lane_group, op.raw, 1);
  rig.turn_all();
  CHECK(op.data[0][0] == 1);
  fake::run();
  rig.turn_all();
  CHECK(rig.members[0]->outcome(1) == "ok");
  CHECK(op.data[0][0] == 14);
  gpu.unmark(*std::move(mark));
  fake::hold(false);  // the stream frees the fusion buffer when it gets there
}

TEST_CASE("nccl: a token is complete when the device is done, which rings the bell", "[nccl]") {
  Rig rig(1);
  fake::hold(true);
  Op op = sum_of({1});
  rig.lanes[0]->submit(rig.members[0]->lane_group, op.raw, 1);
  rig.turn_all();
  rig.lanes[0]->gpu().clear_bell();
  CHECK(rig.turn(0) == Lane::Next::kWatch);
  CHECK_FALSE(bell_rings(*rig.lanes[0]));
  CHECK_FALSE(rig.members[0]->done(1));
  fake::run();
  CHECK(bell_rings(*rig.lanes[0]));
  CHECK(rig.turn(0) == Lane::Next::kNow);
  CHECK(rig.members[0]->done(1));
  CHECK(rig.turn(0) == Lane::Next::kWhenRung);  // idle: no timer at all
}

TEST_CASE("nccl: a batch is one launch to pack it and one to unpack it", "[nccl]") {
  Rig rig(2);
  std::vector<Op> ops;
  for (int rank = 0; rank < 2; ++rank) {
    const auto value = static_cast<float>(rank + 1);
    ops.emplace_back(DISTRUN_BACKEND_ALLREDUCE,
                     std::vector<std::vector<float>>{{value, value}, {}, {10 * value}, {100 * value, 5}});
    ops.back().raw.reduce = DISTRUN_BACKEND_AVERAGE;
    ops.back().raw.prescale = 0.5;
  }
  for (std::size_t i = 0; i < 2; ++i) rig.lanes[i]->submit(rig.members[i]->lane_group, ops[i].raw, 1);
  rig.turn_all();
  CHECK(rig.members[0]->outcome(1) == "ok");
  CHECK(rig.members[1]->outcome(1) == "ok");
  CHECK(ops[0].data == std::vector<std::vector<float>>{{0.75, 0.75}, {}, {7.5}, {75, 2.5}});
  CHECK(ops[1].data == ops[0].data);
  // Rank 1 comes second, so it finds all members there.
  CHECK(fake::calls_of({"cuLaunchKernel", "ncclAllReduce"}) ==
        "cuLaunchKernel s3 pack_float32 3 pieces; ncclAllReduce 5 float32 sum; cuLaunchKernel s3 unpack_float32 3 "
        "pieces; "
        "cuLaunchKernel s1 pack_float32 3 pieces; ncclAllReduce 5 float32 sum; cuLaunchKernel s1 unpack_float32 3 "
        "pieces");
}

TEST_CASE("nccl: more tensors than a launch takes are several launches", "[nccl]") {
  Rig rig(1);
  Op op(DISTRUN_BACKEND_ALLREDUCE, std::vector<std::vector<float>>(300, {1.0F}));
  rig.lanes[0]->submit(rig.members[0]->lane_group, op.raw, 1);
  rig.turn_all();
  CHECK(rig.members[0]->outcome(1) == "ok");
  CHECK(
      fake::calls_of({"cuLaunchKernel"})
          .starts_with(
              "cuLaunchKernel s1 pack_float32 140 pieces; cuLaunchKernel s1 pack_float32 140 pieces; cuLaunchKernel s1 "
              "pack_float32 20 pieces; cuLaunchKernel s1 unpack_float32 140 pieces"));
}

TEST_CASE("nccl: nothing follows a call on the stream before NCCL has taken it", "[nccl]") {
  Rig rig(1);
  fake::lag(3);
  Op op(DISTRUN_BACKEND_ALLREDUCE, {{1, 2}, {3}});
  rig.lanes[0]->submit(rig.members[0]->lane_group, op.raw, 1);
  while (fake::calls_of({"ncclAllReduce"}).empty()) rig.turn(0);
  CHECK(rig.turn(0) == Lane::Next::kNow);
  CHECK(fake::calls_of(kWork) == "cuLaunchKernel s1 pack_float32 2 pieces; ncclAllReduce 3 float32 sum");
  rig.turn_all();
  CHECK(rig.members[0]->outcome(1) == "ok");
  CHECK(op.data == std::vector<std::vector<float>>{{1, 2}, {3}});
}

TEST_CASE("nccl: two groups on a GPU run in the order in which they were started", "[nccl]") {
  Rig rig(2);
  plugin::HostStore other(rig.memory, "other/");
  auto alone = rig.add(other, 0, 0, 1);
  Op both = sum_of({1});
  Op own = sum_of({1, 1});
  Op peers = sum_of({1});
  rig.lanes[0]->submit(rig.members[0]->lane_group, both.raw, 1);
  rig.lanes[0]->submit(alone->lane_group, own.raw, 2);
  for (int i = 0; i < 5; ++i) rig.turn(0);  // the peer is not there yet, so the second operation must wait too
  CHECK(fake::calls_of({"ncclAllReduce"}).empty());
  rig.lanes[1]->submit(rig.members[1]->lane_group, peers.raw, 1);
  rig.turn_all();
  CHECK(fake::calls_of({"ncclAllReduce"}) ==
        "ncclAllReduce 1 float32 sum; ncclAllReduce 1 float32 sum; ncclAllReduce 2 float32 sum");
  CHECK(alone->outcome(2) == "ok");
  CHECK(both.data[0][0] == 2);
}

TEST_CASE("nccl: a communicator is made once, by an id that the store carries", "[nccl]") {
  Rig rig(3);
  for (std::uint64_t token = 1; token <= 4; ++token) {
    std::vector<Op> ops(3, sum_of({1}));
    for (Op& op : ops) op.segments[0] = {.input = op.data[0].data(), .output = op.data[0].data(), .count = 1};
    for (Op& op : ops) op.raw.segments = op.segments.data();
    for (std::size_t i = 0; i < 3; ++i) rig.lanes[i]->submit(rig.members[i]->lane_group, ops[i].raw, token);
    rig.turn_all();
    for (std::size_t i = 0; i < 3; ++i) CHECK(rig.members[i]->outcome(token) == "ok");
    CHECK(ops[2].data[0][0] == 3);
  }
  CHECK(fake::calls_of({"ncclGetUniqueId", "ncclCommInitRankConfig"}) ==
        "ncclGetUniqueId; ncclCommInitRankConfig 0 of 3; ncclCommInitRankConfig 1 of 3; ncclCommInitRankConfig 2 of 3");
}

TEST_CASE("nccl: what is in flight goes on while the program captures a graph", "[nccl]") {
  Rig rig(1);
  fake::hold(true);
  Op op = sum_of({1});
  rig.lanes[0]->submit(rig.members[0]->lane_group, op.raw, 1);
  rig.turn_all();
  fake::capture_streams(true);
  rig.turn_all();
  CHECK(rig.members[0]->outcome(1) == "in flight");
  fake::hold(false);
  rig.turn_all();
  CHECK(rig.members[0]->outcome(1) == "ok");
}

TEST_CASE("nccl: a GPU whose driver does not take the kernels is refused when it is opened", "[nccl]") {
  const std::string symbol = GENERATE(as<std::string>(), "cuModuleLoadData", "cuModuleGetFunction");
  fake::reset();
  const Libraries libraries = fake::libraries();
  fake::fail(symbol, 1);
  const auto gpu = Gpu::open(libraries.cuda, 0, "image");
  REQUIRE_FALSE(gpu.ok());
  CHECK(gpu.status().message().find(symbol) != std::string::npos);
}

// The fake reports a fault otherwise: a call that waits for the device waits for peers, and these may wait for this
// rank.
TEST_CASE("nccl: kernels are there before anything is in flight", "[nccl]") {
  Rig rig(1);
  fake::hold(true);
  Op plain = sum_of({1});
  Op fused(DISTRUN_BACKEND_ALLREDUCE, {{1}, {2}});
  rig.lanes[0]->submit(rig.members[0]->lane_group, plain.raw, 1);
  rig.lanes[0]->submit(rig.members[0]->lane_group, fused.raw, 2);
  rig.turn_all();
  CHECK(rig.members[0]->outcome(1) == "in flight");
  CHECK(fake::calls_of({"cuLaunchKernel"}) ==
        "cuLaunchKernel s1 pack_float32 2 pieces; cuLaunchKernel s1 unpack_float32 2 pieces");
  CHECK(fake::faults().empty());
  const auto staged = rig.lanes[0]->gpu().stage(8);
  REQUIRE(staged.ok());
  CHECK(fake::faults() == std::vector<std::string>{"cuMemHostAlloc while NCCL's work is on the GPU"});
  fake::forget_faults();
  fake::hold(false);
  rig.turn_all();
  CHECK(rig.members[0]->outcome(2) == "ok");
  rig.lanes[0]->gpu().unstage(*staged);
}

TEST_CASE("nccl: a bell that cannot be rung costs time alone", "[nccl]") {
  Rig rig(1);
  fake::fail("cuLaunchHostFunc", 1);
  Op op = sum_of({1});
  rig.lanes[0]->submit(rig.members[0]->lane_group, op.raw, 1);
  rig.turn_all();
  CHECK(rig.members[0]->outcome(1) == "ok");
}

TEST_CASE("nccl: a stream that is captured into a graph is refused with the cure", "[nccl]") {
  Rig rig(1);
  fake::capture_streams(true);
  const auto mark = rig.lanes[0]->gpu().mark(nullptr);
  REQUIRE_FALSE(mark.ok());
  CHECK(mark.status().code() == Errc::kUnsupported);
  CHECK(mark.status().message().find("Submit it outside the capture") != std::string::npos);
}

TEST_CASE("nccl: device memory comes filled, in the order of our stream", "[nccl]") {
  Rig rig(1);
  Gpu& gpu = rig.lanes[0]->gpu();
  for (const std::size_t size : {1U, 2U, 4U, 8U}) {
    std::vector<std::byte> element;
    for (std::size_t i = 0; i < size; ++i) element.push_back(static_cast<std::byte>(i + 1));
    auto memory = gpu.allocate(5 * size, element);
    REQUIRE(memory.ok());
    for (std::size_t i = 0; i < 5; ++i) {
      CHECK(std::memcmp(static_cast<std::byte*>(*memory) + i * size, element.data(), size) == 0);
    }
    gpu.release(*memory);
  }
}

TEST_CASE("nccl: only what the driver calls out of memory is, and any other failure keeps its own error", "[nccl]") {
  Rig rig(1);
  Gpu& gpu = rig.lanes[0]->gpu();
  const auto scope = gpu.current();
  struct Way {
    const char* symbol;
    const char* for_what;
    std::function<Status()> take;
  };
  const std::vector<Way> ways = {
      {"cuMemAllocAsync", "on the GPU", [&] { return gpu.allocate(3 << 20, {}).status(); }},
      {"cuMemAllocAsync", "of the fusion buffer", [&] { return gpu.buffer(3 << 20).status(); }},
      {"cuMemHostAlloc", "in page-locked memory", [&] { return gpu.stage(3 << 20).status(); }},
      {"cuMemAlloc", "of a tensor on its way", [&] { return gpu.blocks().take(3 << 20).status(); }}};
  for (const Way& way : ways) {
    INFO(way.for_what);
    const bool tries_again = way.symbol == std::string("cuMemAlloc");  // with a smaller size
    fake::fail(way.symbol, 2, 0, tries_again ? 2 : 1);
    const Status none = way.take();
    CHECK(none.code() == Errc::kOutOfMemory);
    CHECK(none.message().starts_with("no memory for 3145728 bytes " + std::string(way.for_what) + ": cuda:0: "));
    fake::fail(way.symbol, 700);
    const Status broken = way.take();
    CHECK(broken.code() == Errc::kSystem);
    CHECK(broken.message().starts_with("cuda:0: " + std::string(way.symbol)));
  }
}

TEST_CASE("nccl: a lane with its thread sleeps until it is rung", "[nccl]") {
  Rig rig(2);
  for (auto& lane : rig.lanes) REQUIRE(lane->start_thread().ok());
  std::vector<Op> ops;
  ops.reserve(2);
  for (int i = 0; i < 2; ++i) ops.push_back(sum_of({2}));
  for (std::size_t i = 0; i < 2; ++i) rig.lanes[i]->submit(rig.members[i]->lane_group, ops[i].raw, 1);
  std::vector<std::future<void>> left;
  const TimePoint limit = deadline_after(20);
  while (fake::calls_of({"cuEventQuery"}).empty() && Clock::now() < limit) std::this_thread::yield();
  for (std::size_t i = 0; i < 2; ++i) left.push_back(rig.lanes[i]->leave(rig.members[i]->owned));
  for (auto& one : left) CHECK(one.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  rig.lanes.clear();
  for (auto& member : rig.members) CHECK(member->done(1));
}

}  // namespace
}  // namespace distrun::backend::nccl_plugin
