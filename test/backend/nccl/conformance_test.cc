// The conformance suite on the plug-in `nccl` over a fake of CUDA and NCCL. Each rank is a thread and has one GPU,
// whose memory is the process's own.
#include <catch2/catch_test_macros.hpp>
#include <utility>

#include "runtime/backend/plugin/loader.h"
#include "runtime/base/settings.h"
#include "test/backend/group_fixtures.h"
#include "test/backend/on_gpu.h"
#include "test/backend/ranks.h"

extern const char* const kNcclPlugin;

namespace distrun::test {
namespace {

Result<std::unique_ptr<backend::Backend>> make(const backend::GroupSpec& group, const backend::Services& services,
                                               TimePoint deadline) {
  Settings settings;
  settings.plugins = kNcclPlugin;
  const auto plugins = backend::plugin::load_plugins(settings, "/nonexistent");
  if (plugins.factories.size() != 1) return Status(Errc::kInternal, "the plug-in was not found");
  const backend::Offer offer = plugins.factories[0]->offer(group, services);
  if (!offer.available) return Status(Errc::kUnsupported, offer.reason);
  auto made = plugins.factories[0]->create(group, services, deadline);
  if (!made.ok()) return made.status();
  return std::unique_ptr<backend::Backend>(std::make_unique<OnGpu>(*std::move(made), group.index));
}

}  // namespace

const Subject& subject() {
  static const Subject nccl = {.name = "nccl",
                               .sizes = {1, 2, 3, 4, 5, 8},
                               .make = [](int size) { return std::make_unique<ThreadGroup>(size, make); },
                               .forked = {},
                               .boundaries = {4096, 65536}};  // the second: a tile of the kernels
  return nccl;
}

// The suite skips what a backend does not offer, and the page of backends has no row for this one.
TEST_CASE("nccl: claims every operation and real dtype, many segments and scaling") {
  for_all_sizes([](Rank& rank) {
    for (int kind = 0; kind <= static_cast<int>(OpKind::kReducescatter); ++kind) {
      for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
        if (!can_reduce(static_cast<DType>(dtype), ReduceOp::kMin)) continue;
        const Status can = rank.backend().can(static_cast<OpKind>(kind), static_cast<DType>(dtype));
        if (!can.ok()) rank.fail(can.message());
      }
    }
    rank.expect(rank.backend().capabilities().scatter_gather, "no scatter-gather");
  });
}

}  // namespace distrun::test
