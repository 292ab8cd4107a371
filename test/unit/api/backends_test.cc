#include "runtime/api/backends.h"

#include <catch2/catch_test_macros.hpp>

#include "test/support/fake_store.h"
#include "test/support/ranks.h"

namespace distrun::api {
namespace {

// Does nothing; its factory is what is tested.
class IdleBackend : public backend::Backend {
 public:
  IdleBackend(std::string name, backend::Capabilities can) : name_(std::move(name)), capabilities_(can) {}
  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] const backend::Capabilities& capabilities() const override { return capabilities_; }
  Status start(const backend::Operation&, std::uint64_t) override { return {Errc::kUnsupported, "idle"}; }
  bool progress() override { return false; }
  void completed(std::vector<backend::Completed>&) override {}
  void abort(const Status&) override {}
  [[nodiscard]] int lost_peer() const override { return -1; }

 private:
  std::string name_;
  backend::Capabilities capabilities_;
};

struct Plan {
  std::string name;
  int score = 0;
  int fails_on = -1;        // member index whose create() fails
  int unavailable_on = -1;  // member index that does not offer it
  bool too_slow = false;    // create() fails at its deadline, as it does where that has passed
  int older_on = -1;        // member index on which it has no allgather
};

class PlannedFactory : public backend::Factory {
 public:
  explicit PlannedFactory(Plan plan) : plan_(std::move(plan)) {}
  [[nodiscard]] std::string_view name() const override { return plan_.name; }
  [[nodiscard]] backend::Offer offer(const backend::GroupSpec& group, const backend::Services&) const override {
    backend::Offer offer;
    offer.backend = plan_.name;
    offer.available = group.index != plan_.unavailable_on;
    offer.reason = offer.available ? "planned" : "the library is not there";
    offer.score = plan_.score;
    offer.capabilities = capabilities(group);
    return offer;
  }
  [[nodiscard]] Result<std::unique_ptr<backend::Backend>> create(const backend::GroupSpec& group,
                                                                 const backend::Services& services,
                                                                 TimePoint deadline) const override {
    if (plan_.too_slow) return services.store->get("what nobody sets", deadline).status().with_context(plan_.name);
    if (Clock::now() >= deadline) return Status(Errc::kTimeout, plan_.name + " was given no time");
    if (group.index == plan_.fails_on) return Status(Errc::kSystem, "memory was refused");
    return std::unique_ptr<backend::Backend>(std::make_unique<IdleBackend>(plan_.name, capabilities(group)));
  }

 private:
  [[nodiscard]] backend::Capabilities capabilities(const backend::GroupSpec& group) const {
    constexpr std::uint32_t kAllgather = 1U << static_cast<unsigned>(OpKind::kAllgather);
    const std::uint32_t lacks = group.index == plan_.older_on ? kAllgather : 0;
    return {.ops = 15 & ~lacks, .dtypes = 1023, .devices = 1};
  }

  Plan plan_;
};

struct Outcome {
  std::vector<std::string> chosen;  // by member; an error's message where it failed
  std::vector<std::uint32_t> ops;   // by member: of the chosen one
};

Outcome choose(const std::vector<Plan>& plans, int size, const std::string& forced = "auto", double seconds = 20) {
  test::FakeStore store;
  Outcome outcome;
  outcome.chosen.resize(static_cast<std::size_t>(size));
  outcome.ops.resize(static_cast<std::size_t>(size));
  test::run_ranks(size, [&](int index) {
    Factories factories;
    for (const Plan& plan : plans) factories.push_back(std::make_unique<PlannedFactory>(plan));
    backend::GroupSpec group = {.id = "set0", .members = {}, .index = index};
    std::vector<std::string> hosts;
    for (int i = 0; i < size; ++i) {
      group.members.push_back(i);
      hosts.push_back("host" + std::to_string(i));
    }
    Settings settings;
    settings.backend = forced;
    settings.start_timeout = seconds;
    const net::World world{.rank = index, .size = size};
    const backend::Services services = {.world = &world, .settings = &settings, .store = &store, .host_link_error = ""};
    auto offers = exchange_offers(group, factories, services, deadline_after(20));
    EXPECT_OK(offers);
    auto chosen = choose_backend(DeviceType::kCpu, *std::move(offers), group, factories, services, hosts,
                                 deadline_after(seconds));
    outcome.chosen[static_cast<std::size_t>(index)] =
        chosen.ok() ? to_text(DeviceType::kCpu, chosen->selection) : chosen.status().message();
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

TEST_CASE("offers survive the wire, and damaged ones are refused", "[api]") {
  backend::Offer offer;
  offer.backend = "shm";
  offer.available = true;
  offer.reason = "memory";
  offer.nothing_to_do = "one rank";
  offer.score = 80;
  offer.capabilities = {.ops = 15, .dtypes = 1023, .devices = 1, .scatter_gather = true, .must_be_asked = true};
  const std::string bytes = encode_offers({offer});
  const auto back = decode_offers(bytes);
  REQUIRE(back.ok());
  CHECK(encode_offers(*back) == bytes);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    CHECK_FALSE(decode_offers(bytes.substr(0, length)).ok());
  CHECK_FALSE(decode_offers(bytes + "x").ok());
}

}  // namespace
}  // namespace distrun::api
