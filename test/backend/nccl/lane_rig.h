// Lanes over the fake, with members of groups on them. The test itself acts as the thread of the lanes, so that it
// controls every step.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backend/nccl/lane.h"
#include "runtime/backend/plugin/host_group.h"
#include "test/backend/nccl/fake_gpus.h"
#include "test/backend/record.h"
#include "test/support/fake_store.h"

namespace distrun::backend::nccl_plugin {

namespace fake = test::fake_gpus;

// One member of a group, and its part in a lane.
struct Member {
  Member(const NcclApi& nccl, Lane& its_lane, const distrun_backend_store* store, int index, int members,
         double seconds = 20)
      : lane(its_lane),
        owned(std::make_shared<LaneGroup>(
            nccl, Communicator::Spec{.index = index, .members = members, .seconds = seconds, .store = store},
            record.host())),
        lane_group(*owned) {}
  ~Member() { CHECK_FALSE(record.twice); }
  Lane& lane;
  test::Record record;
  std::shared_ptr<LaneGroup> owned;
  LaneGroup& lane_group;

  [[nodiscard]] bool done(std::uint64_t token) const { return record.done.contains(token); }
  [[nodiscard]] std::string outcome(std::uint64_t token) const { return record.outcome(token); }
};

// `size` GPUs with one lane each, and one group on all of them.
struct Rig {
  explicit Rig(int size, double seconds = 20, int nccl_version = fake::kNewNccl) {
    fake::reset();
    libraries = fake::libraries(nccl_version);
    for (int i = 0; i < size; ++i) {
      auto gpu = Gpu::open(libraries.cuda, i, "image");
      REQUIRE(gpu.ok());
      lanes.push_back(std::make_unique<Lane>(*std::move(gpu)));
    }
    for (int i = 0; i < size; ++i) members.push_back(add(store, i, i, size, seconds));
    fake::forget_calls();
  }
  ~Rig() { CHECK(fake::faults().empty()); }

  std::unique_ptr<Member> add(plugin::HostStore& in, int lane, int index, int size, double seconds = 20) {
    return std::make_unique<Member>(libraries.nccl, *lanes.at(static_cast<std::size_t>(lane)), &in.table(), index, size,
                                    seconds);
  }
  Lane::Next turn(int lane) {
    Lane& one = *lanes.at(static_cast<std::size_t>(lane));
    const Current scope = one.gpu().current();
    return one.turn();
  }
  void turn_all(int times = 12) {
    for (int i = 0; i < times; ++i) {
      for (std::size_t lane = 0; lane < lanes.size(); ++lane) turn(static_cast<int>(lane));
    }
  }

  test::FakeStore memory;
  plugin::HostStore store{memory, "group/"};
  Libraries libraries;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<std::unique_ptr<Member>> members;
};

// An operation with the memory that it uses.
struct Op {
  explicit Op(std::int32_t kind, std::vector<std::vector<float>> inputs) : data(std::move(inputs)) {
    for (auto& one : data) segments.push_back({.input = one.data(), .output = one.data(), .count = one.size()});
    raw = {.struct_size = sizeof(raw),
           .kind = kind,
           .dtype = DISTRUN_BACKEND_FLOAT32,
           .reduce = DISTRUN_BACKEND_SUM,
           .segments = segments.data(),
           .num_segments = segments.size(),
           .prescale = 1.0,
           .postscale = 1.0};
  }
  void after(Mark& mark) {
    marks.push_back(&mark);
    raw.marks = marks.data();
    raw.num_marks = marks.size();
  }
  std::vector<std::vector<float>> data;
  std::vector<distrun_backend_segment> segments;
  std::vector<void*> marks;
  distrun_backend_operation raw{};
};

inline Op sum_of(std::vector<float> values) { return Op(DISTRUN_BACKEND_ALLREDUCE, {std::move(values)}); }

inline bool ready(const std::future<void>& one) {
  return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace distrun::backend::nccl_plugin
