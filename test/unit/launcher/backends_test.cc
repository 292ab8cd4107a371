// Names of backends that are refused before anything starts.
#include "launcher/plan/backends.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("the names in a setting, one for all devices or one for each") {
  CHECK(backends_in("tcp") == Names{"tcp"});
  CHECK(backends_in("cpu:tcp,cuda:nccl") == Names{"tcp", "nccl"});
}

TEST_CASE("the name of a plug-in is in the name of its file") {
  CHECK(backend_of_file("/x/plugins/libdistrun_backend_demo.so") == "demo");
  for (const char* other : {"libdistrun_backend_.so", "/x/libdemo.so", "libdistrun_backend_demo.txt", ""}) {
    CHECK(backend_of_file(other).empty());
  }
}

TEST_CASE("a backend that does not exist is refused, and the others are named") {
  const auto check = [](const std::string& backend, const std::string& plugins = "", const Names& found = {}) {
    Settings settings;
    settings.backend = backend;
    settings.plugins = plugins;
    return check_backend(settings, found);
  };
  for (const char* name : {"auto", "self", "shm", "tcp", "hierarchical", "gloo", "mpi", "nccl", "cpu:tcp,cuda:nccl"}) {
    CHECK(check(name).ok());
  }
  CHECK(check("foo").message() ==
        "There is no backend foo. Choose gloo, hierarchical, mpi, nccl, shm or tcp for --backend (DISTRUN_BACKEND).");
  CHECK(check("foo").code() == Errc::kInvalidArgument);
  CHECK(check("cpu:tcp,cuda:ncl").message().starts_with("There is no backend ncl. Choose "));
  CHECK(check("demo", "/a/libx.so:/a/libdistrun_backend_demo.so").ok());
  CHECK(check("demo", "", {"demo"}).ok());
  CHECK(check("foo", "", {"demo", ""}).message().find("Choose demo, gloo, ") != std::string::npos);
}

TEST_CASE("so is one that does not exist for the setting between_hosts") {
  Settings settings;
  settings.between_hosts = "foo";
  CHECK(check_backend(settings, {"demo"}).message() ==
        "There is no backend foo. Choose demo, gloo, mpi or tcp for --between-hosts (DISTRUN_BETWEEN_HOSTS).");
  settings.between_hosts = "demo";
  CHECK(check_backend(settings, {"demo"}).ok());
  CHECK(check_backend(settings, {}).code() == Errc::kInvalidArgument);
}

}  // namespace
}  // namespace distrun::launcher
