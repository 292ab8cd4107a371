// The plug-in `gloo` in a program that has another Gloo among its global symbols.
#include <dlfcn.h>

#include <catch2/catch_test_macros.hpp>

#include "runtime/backend/plugin/loader.h"
#include "runtime/base/settings.h"

extern const char* const kGlooPlugin;
extern const char* const kOtherGloo;

namespace distrun::backend::plugin {

TEST_CASE("gloo: two Gloos are not mixed") {
  REQUIRE(::dlopen(kOtherGloo, RTLD_NOW | RTLD_GLOBAL) != nullptr);
  Settings settings;
  settings.plugins = kGlooPlugin;
  const Plugins plugins = load_plugins(settings, "/nonexistent");
  REQUIRE(plugins.factories.size() == 1);
  const Offer offer = plugins.factories[0]->offer({.id = "0", .members = {0, 1}, .index = 0}, {});
  CHECK_FALSE(offer.available);
  CHECK(offer.reason.find("has loaded libtest_other_gloo.so with global symbols") != std::string::npos);
  CHECK(offer.reason.ends_with("or use another backend"));
}

}  // namespace distrun::backend::plugin
