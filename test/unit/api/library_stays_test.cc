// A thread of the library may be stuck in a write when the program closes the library, so the library stays loaded.
#include <dlfcn.h>

#include <catch2/catch_test_macros.hpp>

extern const char* const kLibrary;

TEST_CASE("the library stays loaded when nobody uses it any more") {
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  REQUIRE(::dlclose(library) == 0);
  CHECK(::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD) != nullptr);
}
