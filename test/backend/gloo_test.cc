// The conformance suite on the plug-in `gloo`.
#include "runtime/backend/plugin/loader.h"
#include "runtime/base/settings.h"
#include "test/backend/group_fixtures.h"

extern const char* const kGlooPlugin;

namespace distrun::test {
namespace {

Result<std::unique_ptr<backend::Backend>> make(const backend::GroupSpec& group, const backend::Services& services,
                                               TimePoint deadline) {
  Settings settings;
  settings.plugins = kGlooPlugin;
  const auto plugins = backend::plugin::load_plugins(settings, "/nonexistent");
  if (plugins.factories.size() != 1) return Status(Errc::kInternal, "the plug-in was not found");
  const backend::Offer offer = plugins.factories[0]->offer(group, services);
  if (!offer.available) return Status(Errc::kUnsupported, offer.reason);
  return plugins.factories[0]->create(group, services, deadline);
}

}  // namespace

const Subject& subject() {
  static const Subject gloo = {.name = "gloo",
                               .sizes = {1, 2, 3, 4, 5},
                               .make = [](int size) { return std::make_unique<ThreadGroup>(size, make); },
                               .forked = [](int size) { return std::make_unique<ProcessGroup>(size, make); },
                               .boundaries = {4096, 65536}};  // the last: from halving-doubling to a ring
  return gloo;
}

TEST_CASE("gloo: a group's keys stay in the store while a member may need them, and go with the last") {
  ThreadGroup group(3, make);
  Backends backends = create_all(group, 3);
  const std::size_t keys = group.store().size();
  CHECK(keys > 0);
  for (auto& backend : backends) {
    CHECK(group.store().size() >= keys);
    backend.reset();
  }
  CHECK(group.store().size() == 0);
}

}  // namespace distrun::test
