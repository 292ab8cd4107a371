#include <catch2/catch_test_macros.hpp>

#include "runtime/api/backends/choose.h"
#include "runtime/api/backends/why.h"
#include "runtime/base/settings.h"
#include "test/support/fake_store.h"
#include "test/support/planned_factory.h"
#include "test/support/ranks.h"

namespace distrun::api {
namespace {

using Plan = test::PlannedBackend;

struct Outcome {
  std::vector<std::string> chosen;  // by member; the error's message if it failed
  std::vector<std::uint32_t> ops;   // by member: operations of the chosen backend
};

Outcome choose(const std::vector<Plan>& plans, int size, const std::string& forced = "auto", double seconds = 20,
               bool encrypt = false, const std::string& between_hosts = "tcp") {
  test::FakeStore store;
  Outcome outcome;
  outcome.chosen.resize(static_cast<std::size_t>(size));
  outcome.ops.resize(static_cast<std::size_t>(size));
  test::run_ranks(size, [&](int index) {
    Factories factories;
    for (const Plan& plan : plans) factories.push_back(std::make_unique<test::PlannedFactory>(plan));
    backend::GroupSpec group = {.id = "set0", .members = {}, .index = index};
    std::vector<std::string> hosts;
    for (int i = 0; i < size; ++i) {
      group.members.push_back(i);
      hosts.push_back("host" + std::to_string(i));
    }
    Settings settings;
    settings.backend = forced;
    settings.start_timeout = seconds;
    settings.encrypt = encrypt;
    settings.between_hosts = between_hosts;
    const net::World world{.rank = index, .size = size};
    const backend::Services services = {.world = &world, .settings = &settings, .store = &store, .host_link_error = ""};
    auto offers = exchange_offers(group, factories, services, deadline_after(20));
    EXPECT_OK(offers);
    auto chosen = choose_backend(DeviceType::kCpu, *std::move(offers), group, factories, services, hosts,
                                 deadline_after(seconds));
    outcome.chosen[static_cast<std::size_t>(index)] =
        chosen.ok() ? to_text({.selection = chosen->selection}) : chosen.status().message();
    if (chosen.ok()) outcome.ops[static_cast<std::size_t>(index)] = chosen->backend->capabilities().ops;
  });
  return outcome;
}

bool all_contain(const Outcome& outcome, const std::string& text) {
  for (const std::string& chosen : outcome.chosen) {
    if (chosen.find(text) == std::string::npos) return false;
  }
  return true;
}

TEST_CASE("the highest score that every member offers is chosen by all", "[api]") {
  CHECK(all_contain(choose({{"slow", 10}, {"fast", 90}}, 3), "cpu: fast"));
  const Outcome missing = choose({{"slow", 10}, {"fast", 90, -1, 1}}, 3);
  CHECK(all_contain(missing, "cpu: slow"));
  CHECK(all_contain(missing, "the library is not there"));
}

TEST_CASE("what one member cannot set up is dropped by all, with its reason", "[api]") {
  const Outcome outcome = choose({{"slow", 10}, {"fast", 90, 2}}, 3);
  CHECK(all_contain(outcome, "cpu: slow"));
  CHECK(all_contain(outcome, "memory was refused"));
}

TEST_CASE("what is not set up in time is dropped with its reason, and the next backend has time of its own", "[api]") {
  const Outcome outcome = choose({{"slow", 10}, {"fast", 90, -1, -1, true}}, 3, "auto", 0.5);
  CHECK(all_contain(outcome, "cpu: slow"));
  CHECK(all_contain(outcome, "not fast: rank 0 (host0): not available: fast: store: nobody set what nobody sets"));
}

TEST_CASE("what one member's version of a backend cannot do is refused on all", "[api]") {
  const Outcome outcome = choose({{.name = "plug-in", .score = 10, .older_on = 1}}, 3);
  CHECK(all_contain(outcome, "cpu: plug-in"));
  CHECK(outcome.ops[1] != 15);
  CHECK(outcome.ops == std::vector<std::uint32_t>(3, outcome.ops[1]));
}

TEST_CASE("a forced backend that cannot be set up is an error on every member", "[api]") {
  const Outcome outcome = choose({{"slow", 10}, {"fast", 90, 1}}, 2, "fast");
  CHECK(all_contain(outcome, "memory was refused"));
  CHECK_FALSE(all_contain(outcome, "cpu: "));
}

TEST_CASE("a backend for the setting between_hosts that does not exist is an error on every member", "[api]") {
  const std::vector<Plan> plans = {{"hierarchical", 90}, {"tcp", 10}, {"plug-in", 10}};
  CHECK(all_contain(choose(plans, 2, "auto", 20, false, "plug-in"), "cpu: hierarchical"));
  CHECK(all_contain(choose(plans, 2, "auto", 20, false, "foo"),
                    "There is no backend foo. Choose plug-in or tcp for --between-hosts (DISTRUN_BETWEEN_HOSTS)."));
}

TEST_CASE("under --encrypt what sends tensors to other hosts as they are is not chosen, nor taken where it is forced",
          "[api]") {
  const std::vector<Plan> plans = {{.name = "open", .score = 90}, {.name = "sealed", .score = 10, .protects = true}};
  CHECK(all_contain(choose(plans, 2, "auto", 20, false), "cpu: open"));
  const Outcome outcome = choose(plans, 2, "auto", 20, true);
  CHECK(all_contain(outcome, "cpu: sealed"));
  CHECK(all_contain(outcome, "it cannot protect tensors between hosts, as --encrypt demands"));
  const Outcome forced = choose(plans, 2, "open", 20, true);
  CHECK(all_contain(forced, "--backend open"));
  CHECK(all_contain(forced, "as --encrypt demands"));
  CHECK(all_contain(choose({{.name = "open", .score = 90}}, 2, "auto", 20, true), "as --encrypt demands"));
  CHECK(all_contain(choose(plans, 1, "auto", 20, true), "cpu: open"));  // one rank alone sends nothing
}

TEST_CASE("offers survive the wire, and damaged ones are refused", "[api]") {
  backend::Offer offer;
  offer.backend = "shm";
  offer.available = true;
  offer.reason = "memory";
  offer.nothing_to_do = "one rank";
  offer.score = 80;
  offer.capabilities = {
      .ops = 15, .dtypes = 1023, .devices = 1, .scatter_gather = true, .moved_by = backend::MovedBy::kCalls};
  const std::string bytes = encode_offers({offer});
  const auto back = decode_offers(bytes);
  REQUIRE(back.ok());
  CHECK(encode_offers(*back) == bytes);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    CHECK_FALSE(decode_offers(bytes.substr(0, length)).ok());
  CHECK_FALSE(decode_offers(bytes + "x").ok());
  offer.available = false;
  for (const backend::Absence absence : {backend::Absence::kMissing, backend::Absence::kUnmetSetting}) {
    offer.absence = absence;
    const auto absent = decode_offers(encode_offers({offer}));
    REQUIRE(absent.ok());
    CHECK_FALSE(absent->front().available);
    CHECK(absent->front().absence == absence);
  }
}

}  // namespace
}  // namespace distrun::api
