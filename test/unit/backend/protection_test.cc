// How the members of a group agree on the protection of their connections to other hosts.
#include "runtime/backend/protection.h"

#include <catch2/catch_test_macros.hpp>

#include "runtime/backend/hierarchical/hierarchical_factory.h"
#include "runtime/base/settings.h"
#include "test/support/fake_host_link.h"
#include "test/support/fake_store.h"
#include "test/support/planned_factory.h"
#include "test/support/ranks.h"

namespace distrun::backend {
namespace {

net::World world_of_4(int on_this_host) { return {.size = 4, .local_size = on_this_host}; }

}  // namespace

TEST_CASE("protection: an option asks for it where a job has several hosts", "[protection]") {
  const Settings none;
  const Settings encrypt{.encrypt = true};
  const Settings both{.encrypt = true, .checksum = true};
  const Settings checksum{.checksum = true};
  const net::World two_hosts = world_of_4(2);
  const net::World one_host = world_of_4(4);
  const auto asked = [](const net::World& world, const Settings* settings) {
    return asked_protection({.world = &world, .settings = settings});
  };
  CHECK(asked(two_hosts, nullptr).empty());
  CHECK(asked(two_hosts, &none).empty());
  CHECK(asked(two_hosts, &encrypt) == "--encrypt");
  CHECK(asked(two_hosts, &both) == "--encrypt");
  CHECK(asked(two_hosts, &checksum) == "--checksum");
  CHECK(asked(one_host, &both).empty());
}

TEST_CASE("protection: all members agree, and connections inside of a host stay plain", "[protection]") {
  for (const bool encrypt : {true, false}) {
    const Settings settings{.encrypt = encrypt, .checksum = true};
    test::FakeHost first(2, {});
    test::FakeHost second(2, {.first_rank = 2});
    test::FakeStore store;
    const net::World world = world_of_4(2);
    test::run_ranks(4, [&](int rank) {
      auto wait_set = net::WaitSet::create();
      EXPECT_OK(wait_set);
      const auto link = (rank < 2 ? first : second).link(rank % 2, wait_set->get());
      const Services services = {.world = &world, .settings = &settings, .store = &store, .host_link = link.get()};
      const auto protection = agree_on_protection("step", {.id = "0", .members = {0, 1, 2, 3}, .index = rank}, services,
                                                  deadline_after(20));
      EXPECT_OK(protection);
      const net::RecordSuite suite{.encrypts = encrypt, .aes = net::aes_available()};
      for (std::size_t i = 0; i < 4; ++i) {
        for (std::size_t j = 0; j < 4; ++j) EXPECT_EQ(protection->between(i, j).has_value(), i / 2 != j / 2);
      }
      EXPECT_EQ(protection->between(0, 3) == suite, true);
    });
  }
}

TEST_CASE("protection: nothing is exchanged where nothing is asked for", "[protection]") {
  const Settings settings;
  const net::World world = world_of_4(2);
  const Services services = {.world = &world, .settings = &settings};  // no store
  const auto protection =
      agree_on_protection("step", {.id = "0", .members = {0, 1}, .index = 0}, services, deadline_after(20));
  REQUIRE(protection.ok());
  CHECK_FALSE(protection->between(0, 1));
}

TEST_CASE("protection: hierarchical offers what it can protect", "[protection]") {
  Factories factories;
  factories.push_back(std::make_unique<test::PlannedFactory>(test::PlannedBackend{.name = "nccl", .score = 90}));
  factories.push_back(std::make_unique<test::PlannedFactory>(test::PlannedBackend{.name = "open", .score = 9}));
  Settings settings;
  const net::World world = world_of_4(2);
  const GroupSpec group = {.id = "0", .members = {0, 1}, .index = 0};
  const Services services = {.world = &world, .settings = &settings, .factories = &factories};
  const auto factory = make_hierarchical_factory();
  constexpr std::uint32_t kGpus = 1U << static_cast<unsigned>(DeviceType::kCuda);
  CHECK((factory->offer(group, services).capabilities.devices & kGpus) != 0);
  settings.encrypt = true;
  CHECK(factory->protects(services));
  CHECK(factory->offer(group, services).available);
  CHECK((factory->offer(group, services).capabilities.devices & kGpus) == 0);  // nccl also between hosts
  settings.between_hosts = "open";
  CHECK_FALSE(factory->protects(services));
  const Offer offer = factory->offer(group, services);
  CHECK_FALSE(offer.available);
  CHECK(offer.reason ==
        "--between-hosts open is not available: it cannot protect tensors between hosts, as --encrypt demands");
}

}  // namespace distrun::backend
