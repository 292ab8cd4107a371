// The conformance suite on examples/plugin_backend. Its own CMake project builds it, and it is loaded as a user's
// plug-in.
#include "runtime/backend/plugin/loader.h"
#include "runtime/base/settings.h"
#include "test/backend/group_fixtures.h"

extern const char* const kDemoPlugin;

namespace distrun::test {
namespace {

Result<std::unique_ptr<backend::Backend>> make(const backend::GroupSpec& group, const backend::Services& services,
                                               TimePoint deadline) {
  Settings settings;
  settings.plugins = kDemoPlugin;
  const auto plugins = backend::plugin::load_plugins(settings, "/nonexistent");
  if (plugins.factories.size() != 1) return Status(Errc::kInternal, "the plug-in was not found");
  const backend::Offer offer = plugins.factories[0]->offer(group, services);
  if (!offer.available) return Status(Errc::kUnsupported, offer.reason);
  return plugins.factories[0]->create(group, services, deadline);
}

}  // namespace

const Subject& subject() {
  static const Subject demo = {.name = "demo",
                               .sizes = {1, 2, 3, 4, 5, 8},
                               .make = [](int size) { return std::make_unique<ThreadGroup>(size, make); },
                               .forked = [](int size) { return std::make_unique<ProcessGroup>(size, make); },
                               .boundaries = {32768}};  // the size of a value in the store
  return demo;
}

}  // namespace distrun::test
