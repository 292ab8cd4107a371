#include "runtime/engine/run/tensor_table.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <thread>

namespace distrun::engine {
namespace {

class Fixture {
 public:
  Fixture() : table(1) {
    table.open_set(0, {0, 1});
    table.open_set(3, {0, 2});
  }
  // Tensors with different places have separate memory.
  Submission tensor(const std::string& name, std::size_t place = 0) {
    float* at = memory.data() + 4 * place;
    return {.name = name, .shape = {4}, .input = at, .output = at};
  }
  Result<std::vector<HandlePtr>> submit(const Submission& one) { return table.submit(std::span(&one, 1), {}); }
  void complete_all() {
    std::vector<Completion> completions;
    for (const TensorPtr& one : table.all_in_flight()) completions.push_back({.tensor = one});
    table.complete(completions);
    for (const Completion& one : completions) CHECK(one.tensor->done());
  }

  std::array<float, 12> memory{};
  TensorTable table;
};

TEST_CASE_METHOD(Fixture, "a name in flight is refused, and free again once the handle is done") {
  const auto first = submit(tensor("a"));
  REQUIRE(first.ok());
  CHECK_FALSE(first->front()->done());
  const auto again = submit(tensor("a"));
  REQUIRE_FALSE(again.ok());
  CHECK(again.status().code() == Errc::kDuplicateName);
  CHECK(again.status().info().tensor == "a");
  CHECK(again.status().info().usable);
  complete_all();
  CHECK(first->front()->done());
  CHECK(first->front()->status().ok());
  CHECK(submit(tensor("a")).ok());
}

TEST_CASE_METHOD(Fixture, "all or none: one refusal leaves nothing behind") {
  const std::vector<Submission> twice{tensor("a"), tensor("b"), tensor("a")};
  const auto refused = table.submit(twice, {});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code() == Errc::kDuplicateName);
  CHECK(table.in_flight() == 0);
  CHECK_FALSE(table.has_new());
  CHECK(submit(tensor("b")).ok());
}

TEST_CASE_METHOD(Fixture, "a join has a name that nothing else has, and stands alone") {
  const auto refused = [&](const std::vector<Submission>& all, const char* text) {
    const auto result = table.submit(all, {});
    REQUIRE_FALSE(result.ok());
    INFO(result.status().message());
    CHECK(result.status().code() == Errc::kInvalidArgument);
    CHECK(result.status().message().find(text) != std::string::npos);
    CHECK(table.in_flight() == 0);
  };
  refused({tensor(std::string(kJoinName))},
          "tensor 'distrun.join': this name is reserved for join(). Choose another one");
  refused({{.kind = OpKind::kJoin, .name = "j"}}, "the name of a join must be 'distrun.join'");
  std::vector<Submission> grouped{tensor("a"), {.kind = OpKind::kJoin, .name = std::string(kJoinName)}};
  for (Submission& one : grouped) one.group = 1;
  refused(grouped, "a join cannot be in a group. Submit it alone");
}

TEST_CASE_METHOD(Fixture, "bad arguments are refused by name") {
  const auto refused = [&](auto change, const char* text) {
    Submission one = tensor("bad");
    change(one);
    const auto result = submit(one);
    REQUIRE_FALSE(result.ok());
    INFO(result.status().message());
    CHECK(result.status().code() == Errc::kInvalidArgument);
    CHECK(result.status().message().find(text) != std::string::npos);
  };
  refused([](Submission& s) { s.name.clear(); }, "a name has 1 to");
  refused([](Submission& s) { s.name.assign(2000, 'x'); }, "a name has 1 to");
  refused([](Submission& s) { s.shape = {-1}; }, "negative dimension");
  refused([](Submission& s) { s.shape = {1LL << 62, 4}; }, "larger than memory");
  refused([](Submission& s) { s.shape.assign(65, 1); }, "at most 64 dimensions");
  refused([](Submission& s) { s.input = nullptr; }, "input is a null pointer");
  refused([](Submission& s) { s.output = nullptr; }, "output is a null pointer");
  refused([](Submission& s) { s.output = static_cast<float*>(s.output) + 1; }, "overlap");
  refused([](Submission& s) { s.process_set = 7; }, "does not exist");
  refused([](Submission& s) { s.process_set = 3; }, "rank 1 is not a member");
}

TEST_CASE_METHOD(Fixture, "a reduction that the dtype does not have is refused by name, and a move is not") {
  const auto submits = [&](OpKind kind, ReduceOp reduce, DType dtype, bool on_gpu = false) {
    Submission one = tensor("z");
    one.kind = kind;
    one.reduce = reduce;
    one.dtype = dtype;
    one.shape = {2};
    if (kind == OpKind::kAllgather) one.output = nullptr;
    if (on_gpu) one.device = {.type = DeviceType::kCuda, .index = 0};
    const auto result = submit(one);
    complete_all();
    return result.ok() ? "" : result.status().message();
  };
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct}) {
    CHECK(submits(OpKind::kAllreduce, op, DType::kC128).empty());
  }
  CHECK(submits(OpKind::kAllreduce, ReduceOp::kMin, DType::kC64) ==
        "tensor 'z': complex64 has no min, because complex numbers have no order. Use sum, average or product, or pass "
        "the real and imaginary parts (view_as_real)");
  CHECK(submits(OpKind::kReducescatter, ReduceOp::kMax, DType::kC64).starts_with("tensor 'z': complex64 has no max"));
  CHECK(submits(OpKind::kAllreduce, ReduceOp::kSum, DType::kF8E4M3FN) ==
        "tensor 'z': float8_e4m3fn can be moved (broadcast, allgather, alltoall) and not reduced. Convert the tensor, "
        "for instance to float16 or float32");
  CHECK(submits(OpKind::kReducescatter, ReduceOp::kSum, DType::kC32) ==
        "tensor 'z': complex32 can be moved (broadcast, allgather, alltoall) and not reduced. Convert the tensor "
        "to complex64");
  CHECK(submits(OpKind::kAllreduce, ReduceOp::kSum, DType::kC64, true).empty());
  CHECK(submits(OpKind::kAllreduce, ReduceOp::kProduct, DType::kC64, true) ==
        "tensor 'z': a product of complex64 needs CPU memory. Copy the tensor to the CPU first");
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    for (const OpKind kind : {OpKind::kBroadcast, OpKind::kAllgather}) {
      CHECK(submits(kind, ReduceOp::kMax, static_cast<DType>(dtype)).empty());
    }
  }
}

TEST_CASE_METHOD(Fixture, "tensors of one call that overwrite each other are refused by name, all of them") {
  const std::vector<Submission> same{tensor("a"), tensor("b")};
  const auto refused = table.submit(same, {});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code() == Errc::kInvalidArgument);
  CHECK(refused.status().info().tensor == "b");
  CHECK(refused.status().message() ==
        "tensor 'b': its memory overlaps that of tensor 'a', which is in the same call. Use separate memory, or one "
        "call after the other");
  CHECK(table.in_flight() == 0);
  CHECK_FALSE(table.has_new());
  std::vector<Submission> tied = same;
  for (Submission& one : tied) one.kind = OpKind::kBroadcast;
  CHECK(table.submit(tied, {}).ok());
  complete_all();
  CHECK(table.submit(std::vector<Submission>{tensor("a"), tensor("b", 1)}, {}).ok());
}

TEST_CASE_METHOD(Fixture, "what is refused does not decide which GPU a process set is on") {
  const auto on_gpu = [&](const std::string& name, std::int16_t index) {
    Submission one = tensor(name);
    one.device = {.type = DeviceType::kCuda, .index = index};
    return one;
  };
  CHECK(table.submit(std::vector<Submission>{on_gpu("a", 0), on_gpu("b", 1)}, {}).status().code() ==
        Errc::kInvalidArgument);
  CHECK(submit(on_gpu("a", 1)).ok());
  CHECK(table.submit(std::vector<Submission>{on_gpu("b", 1), on_gpu("a", 1)}, {}).status().code() ==
        Errc::kDuplicateName);
  complete_all();
  const auto refused = submit(on_gpu("a", 0));
  CHECK(refused.status().code() == Errc::kInvalidArgument);
  CHECK(refused.status().message().find("distrun_process_set_add_by_members") != std::string::npos);
}

TEST_CASE_METHOD(Fixture, "a process set that was to be removed and was not has the GPU that it had") {
  Submission one = tensor("a");
  one.process_set = 1;
  one.device = {.type = DeviceType::kCuda, .index = 1};
  table.open_set(1, {0, 1});
  CHECK(submit(one).ok());
  complete_all();
  CHECK(table.close_set(1).ok());
  table.open_set(1, {0, 1});
  one.device.index = 0;
  CHECK(submit(one).status().code() == Errc::kInvalidArgument);
  table.forget_set(1);
  table.open_set(1, {0, 1});
  CHECK(submit(one).ok());
}

TEST_CASE_METHOD(Fixture, "no memory is needed for what has no elements") {
  Submission empty = tensor("empty");
  empty.shape = {0};
  empty.input = empty.output = nullptr;
  CHECK(submit(empty).ok());
  CHECK(submit({.kind = OpKind::kBarrier, .name = "barrier"}).ok());
  Submission gather = tensor("gather");
  gather.kind = OpKind::kAllgather;
  gather.output = nullptr;
  CHECK(submit(gather).ok());
}

TEST_CASE_METHOD(Fixture, "new tensors are taken once, in order") {
  REQUIRE(submit(tensor("a")).ok());
  REQUIRE(submit(tensor("b", 1)).ok());
  CHECK(table.has_new());
  std::vector<TensorPtr> taken;
  table.take_new(taken);
  REQUIRE(taken.size() == 2);
  CHECK(taken[0]->submission().name == "a");
  CHECK(taken[1]->submission().name == "b");
  CHECK_FALSE(table.has_new());
  table.take_new(taken);
  CHECK(taken.size() == 2);
}

TEST_CASE_METHOD(Fixture, "a group's tag depends on its names alone") {
  std::vector<Submission> group{tensor("x"), tensor("y", 1), tensor("alone", 2)};
  group[0].group = group[1].group = 5;
  group[2].group = 6;
  REQUIRE(table.submit(group, {}).ok());
  std::vector<TensorPtr> taken;
  table.take_new(taken);
  const GroupTag tag = taken[0]->signature().group;
  CHECK(tag.size == 2);
  CHECK(tag.first == "x");
  CHECK(taken[1]->signature().group == tag);
  CHECK(taken[2]->signature().group.size == 0);
  complete_all();
  std::vector<Submission> reversed{tensor("y"), tensor("x", 1)};
  reversed[0].group = reversed[1].group = 99;
  REQUIRE(table.submit(reversed, {}).ok());
  taken.clear();
  table.take_new(taken);
  CHECK(taken[0]->signature().group == tag);
}

TEST_CASE_METHOD(Fixture, "the end of a job replaces leaving as the reason of refusal, not the other way round") {
  table.close({Errc::kShutDown, "shut down"});
  CHECK(submit(tensor("a")).status().code() == Errc::kShutDown);
  table.close(Status(ErrorInfo{.code = Errc::kRankLost, .message = "lost", .usable = false}));
  CHECK(submit(tensor("a")).status().code() == Errc::kRankLost);
  table.close({Errc::kShutDown, "shut down"});
  CHECK(submit(tensor("a")).status().code() == Errc::kRankLost);
}

TEST_CASE_METHOD(Fixture, "16 threads: every accepted tensor is taken exactly once") {
  std::vector<std::thread> threads;
  std::atomic<int> accepted{0};
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        // The threads share half of the names, so that duplicates occur.
        const std::string name = (i % 2 == 0 ? std::string("shared.") : std::to_string(t) + ".") + std::to_string(i);
        Submission one = tensor(name);  // all may read the same memory
        one.kind = OpKind::kAllgather;
        one.output = nullptr;
        if (submit(one).ok()) accepted.fetch_add(1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<TensorPtr> taken;
  table.take_new(taken);
  CHECK(static_cast<int>(taken.size()) == accepted.load());
  CHECK(accepted.load() == 16 * 100 + 100);
  CHECK(table.in_flight() == taken.size());
}

}  // namespace
}  // namespace distrun::engine
