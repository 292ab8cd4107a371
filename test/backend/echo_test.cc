// The conformance suite on a plug-in that runs on distrun's own thread, and the errors for broken plug-ins.
#include <signal.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/backend/plugin/describe.h"
#include "runtime/backend/plugin/loader.h"
#include "runtime/backend/plugin/plugin_group.h"
#include "runtime/base/settings.h"
#include "test/backend/group_fixtures.h"

extern const char* const kTestPlugins;

namespace distrun::test {
namespace {

std::string file(const std::string& name) { return std::string(kTestPlugins) + "/libdistrun_backend_" + name + ".so"; }

backend::plugin::Plugins load(const std::string& files, const std::string& folder = "/nonexistent") {
  Settings settings;
  settings.plugins = files;
  return backend::plugin::load_plugins(settings, folder);
}

Result<std::unique_ptr<backend::Backend>> make(const backend::GroupSpec& group, const backend::Services& services,
                                               TimePoint deadline) {
  const auto plugins = load(file("echo"));
  return plugins.factories.at(0)->create(group, services, deadline);
}

backend::Offer offer_of(const backend::plugin::Plugins& plugins, std::size_t i, std::vector<int> members = {0}) {
  return plugins.factories.at(i)->offer({.id = "0", .members = std::move(members)}, {});
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

const Subject& subject() {
  static const Subject echo = {
      .name = "echo",
      .sizes = {1},
      .make = [](int size) { return std::make_unique<ThreadGroup>(size, make); },
      .forked = [](int size) { return std::make_unique<ProcessGroup>(size, make); },
      .boundaries = {4096},
  };
  return echo;
}

TEST_CASE("plug-ins: what one says of itself is bounded by what there is") {
  const auto plugins = load(file("echo"));
  REQUIRE(plugins.factories.size() == 1);
  CHECK(plugins.factories[0]->name() == "echo");
  const backend::Offer offer = offer_of(plugins, 0);
  CHECK(offer.available);
  CHECK(offer.reason == "returns what it gets");
  CHECK(offer.score == 100);
  CHECK(offer.capabilities.dtypes == (1U << kNumDTypes) - 1);
  CHECK(offer.capabilities.moved_by != backend::MovedBy::kOwnThread);
  CHECK(offer.capabilities.exclusive);
  CHECK(offer_of(plugins, 0, {0, 1}).reason == "serves one rank only");
  CHECK(!offer_of(plugins, 0, {0, 1}).available);
}

TEST_CASE("plug-ins: an error of create_group comes through with its text") {
  ThreadGroup group(2, make);
  const auto made = group.create(0, deadline_after(10));
  REQUIRE(!made.ok());
  CHECK(made.status().code() == Errc::kUnsupported);
  CHECK(made.status().message() == "echo serves one rank only");
}

TEST_CASE("plug-ins: the same ranks are a group of its own for each kind of device") {
  FakeStore store;
  const auto key = net::JobKey::generate();
  const auto wait_set = net::WaitSet::create();
  REQUIRE(wait_set.ok());
  const backend::Services services = {.key = &key, .store = &store, .wait_set = wait_set->get()};
  const auto library = backend::plugin::Library::load(file("echo"));
  REQUIRE(library.ok());
  const std::byte drawn{7};
  std::vector<net::Mac> macs;
  for (const DeviceType device : {DeviceType::kCpu, DeviceType::kCuda}) {
    const backend::GroupSpec group = {.id = "0", .members = {0}, .index = 0, .device = device};
    backend::plugin::PluginGroup made(*library, group, services, true);
    const Status status = made.create(deadline_after(10));
    CHECK((status.ok() ? "" : status.message()) == "");
    const std::string prefix = "echo/0/" + std::string(name_of(device)) + ":";
    CHECK(*store.add(prefix + "made", 0) == 1);
    CHECK(*store.add(prefix + "device", 0) == 1 + static_cast<int>(device));
    macs.push_back(*made.host().mac({&drawn, 1}));
  }
  CHECK(macs[0] != macs[1]);
}

TEST_CASE("plug-ins: an operation that is alone is tried where it stands, and a broken connection is no signal") {
  ThreadGroup group(1, [](const backend::GroupSpec& spec, const backend::Services& services, TimePoint deadline) {
    return load(file("now")).factories.at(0)->create(spec, services, deadline);
  });
  auto made = group.create(0, deadline_after(10));
  REQUIRE(made.ok());
  std::uint64_t token = 0;
  const auto done_by = [&](bool alone, std::int32_t later) {
    std::array<std::int32_t, 2> data = {0, later};
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    const backend::Segment segment = {.in = bytes, .out = bytes, .count = data.size()};
    REQUIRE((*made)->start({.dtype = DType::kI32, .segments = {&segment, 1}, .alone = alone}, ++token).ok());
    std::vector<backend::Completed> done;
    while (done.empty()) {
      if (!(*made)->progress()) std::this_thread::yield();
      (*made)->completed(done);
    }
    CHECK(done.size() == 1);
    CHECK(done[0].token == token);
    CHECK(done[0].status.ok());
    return data[0];
  };
  CHECK(done_by(true, 0) == TRIED);
  CHECK(done_by(true, 1) == STARTED);
  CHECK(done_by(false, 0) == STARTED);
  sigset_t mask;
  REQUIRE(pthread_sigmask(SIG_SETMASK, nullptr, &mask) == 0);
  CHECK(sigismember(&mask, SIGPIPE) == 0);
}

TEST_CASE("plug-ins: a broken one is an offer that says what is wrong") {
  const auto reason = [](const std::string& name) {
    const auto plugins = load(file(name));
    REQUIRE(plugins.factories.size() == 1);
    CHECK(plugins.factories[0]->name() == name);
    CHECK(!plugins.factories[0]->create({}, {}, deadline_after(1)).ok());
    const backend::Offer offer = offer_of(plugins, 0);
    CHECK(!offer.available);
    return offer.reason;
  };
  CHECK(contains(reason("empty"), "has no function distrun_backend_open()"));
  CHECK(contains(reason("future"), "built for version 7"));
  CHECK(contains(reason("misnamed"), "its name is 'echo'"));
  CHECK(contains(reason("moody"), "not today"));
  CHECK(contains(reason("absent"), "No such file"));
}

TEST_CASE("plug-ins: a file that is no library, and names that are taken or none") {
  const std::filesystem::path folder = std::filesystem::path(kTestPlugins) / "scratch";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "libdistrun_backend_text.so") << "hello";
  std::ofstream(folder / "libdistrun_backend_tcp.so") << "taken by a built-in backend";
  std::ofstream(folder / "readme.txt") << "not looked at";
  const auto plugins = load(file("echo") + "::" + file("echo") + ":/tmp/other.so", folder);
  REQUIRE(plugins.factories.size() == 2);
  CHECK(plugins.factories[0]->name() == "echo");
  CHECK(plugins.factories[1]->name() == "text");
  CHECK(contains(offer_of(plugins, 1).reason, "libdistrun_backend_text.so"));
  REQUIRE(plugins.warnings.size() == 3);
  CHECK(contains(plugins.warnings[0], "another backend has the name 'echo'"));
  CHECK(contains(plugins.warnings[1], "/tmp/other.so"));
  CHECK(contains(plugins.warnings[2], "another backend has the name 'tcp'"));
}

TEST_CASE("plug-ins: the list of backends tells the truth about each") {
  Settings settings;
  settings.plugins = file("echo") + ":" + file("moody");
  settings.plugins += ":/tmp/other.so";
  const backend::BackendList list = backend::list_backends(settings, "/nonexistent");
  const std::string text = backend::to_text(list);
  CHECK(contains(text, "self: ok (built in)\n"));
  CHECK(contains(text, "tcp: ok (built in)\n"));
  CHECK(contains(text, "echo: not available (serves one rank only)\n"));
  CHECK(contains(text, "moody: not available (not today)\n"));
  CHECK(contains(text, "mpi: not available (no plug-in libdistrun_backend_mpi.so in /nonexistent)\n"));
  CHECK(contains(text, "nccl: not available"));
  CHECK(contains(text, "warning: The plug-in file '/tmp/other.so'"));
  CHECK(std::filesystem::path(backend::plugin::default_folder()).filename() == "plugins");
  const std::string json = backend::to_json(list);
  CHECK(contains(json, R"({"backend": "tcp", "usable": true, "reason": "built in"})"));
  CHECK(contains(
      json, R"({"backend": "echo", "usable": false, "reason": "serves one rank only", "library_version": 10203})"));
}

}  // namespace distrun::test
