#include "runtime/engine/run/member.h"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>

namespace distrun::engine {
namespace {

TensorPtr tensor(OpKind kind, const std::string& name, int set, Device device = {}) {
  Submission one{.kind = kind, .name = name, .shape = {4}, .device = device, .process_set = set};
  Signature signature{.kind = kind, .device = device.type};
  if (kind != OpKind::kJoin) signature.shape = {4};
  return std::make_shared<Tensor>(one, std::move(signature), TimePoint{});
}

// The GPU that this rank uses in place of another rank's CUDA tensor. This rank has joined the set.
int stands_in_on(Member& member, int set) {
  const Signature signature{.device = DeviceType::kCuda, .shape = {4}};
  const auto tensors = member.run({.set = set, .tensors = {{.name = "of the others", .signature = signature}}});
  REQUIRE(tensors.ok());
  REQUIRE(tensors->size() == 1);
  CHECK(tensors->front().tensor->is_stand_in());
  return tensors->front().tensor->submission().device.index;
}

TEST_CASE("a rank that has joined stands in on its own GPU, also in a set where it never had a tensor") {
  std::vector<Message> out;
  Member member;
  member.submit(tensor(OpKind::kAllreduce, "x", 0, {.type = DeviceType::kCuda, .index = 1}), out);
  member.submit(tensor(OpKind::kJoin, std::string(kJoinName), 1), out);
  CHECK(stands_in_on(member, 1) == 1);

  // The GPU that this rank itself used in the set has priority.
  member.submit(tensor(OpKind::kAllreduce, "x", 2, {.type = DeviceType::kCuda, .index = 3}), out);
  member.submit(tensor(OpKind::kAllreduce, "y", 0, {.type = DeviceType::kCuda, .index = 1}), out);
  member.submit(tensor(OpKind::kJoin, std::string(kJoinName), 2), out);
  CHECK(stands_in_on(member, 2) == 3);
}

TEST_CASE("before it had a CUDA tensor a rank stands in on the GPU that the launcher gave it") {
  std::vector<Message> out;
  Member member(2);
  member.submit(tensor(OpKind::kJoin, std::string(kJoinName), 0), out);
  CHECK(stands_in_on(member, 0) == 2);
}

TEST_CASE("a join says where to stand in, but in a set that has had a CUDA tensor of this rank") {
  std::vector<Message> out;
  Member member(2);
  member.submit(tensor(OpKind::kAllreduce, "x", 1, {.type = DeviceType::kCuda, .index = 3}), out);
  for (const int set : {0, 1}) {
    Submission join{.kind = OpKind::kJoin, .name = std::string(kJoinName), .process_set = set, .stand_in_gpu = 1};
    member.submit(std::make_shared<Tensor>(join, Signature{.kind = OpKind::kJoin}, TimePoint{}), out);
  }
  CHECK(stands_in_on(member, 0) == 1);
  CHECK(stands_in_on(member, 1) == 3);
}

}  // namespace
}  // namespace distrun::engine
