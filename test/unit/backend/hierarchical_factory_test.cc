// How a `hierarchical` backend is set up, with ranks as threads on faked hosts and TCP between the hosts.
#include "runtime/backend/hierarchical/hierarchical_factory.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/settings.h"
#include "test/support/fake_host_link.h"
#include "test/support/fake_store.h"
#include "test/support/ranks.h"

namespace distrun::backend {
namespace {

using test::FakeHost;
using test::FakeHostOptions;

// Two ranks on each of two hosts. Each rank calls `what`.
class TwoHosts {
 public:
  explicit TwoHosts(const std::string& refusal_of_first = "")
      : first_(2, {.share_error = refusal_of_first}), second_(2, {.first_rank = 2}) {
    settings_.shm_window = 4096;
  }

  void run(const std::function<void(const GroupSpec&, const Services&)>& what) {
    test::run_ranks(4, [&](int rank) {
      auto wait_set = net::WaitSet::create();
      EXPECT_OK(wait_set);
      const auto link = (rank < 2 ? first_ : second_).link(rank % 2, wait_set->get());
      const GroupSpec group = {.id = "0", .members = {0, 1, 2, 3}, .index = rank};
      what(group, {.world = &world_,
                   .key = &key_,
                   .settings = &settings_,
                   .store = &store_,
                   .wait_set = wait_set->get(),
                   .host_link = link.get()});
    });
  }

 private:
  FakeHost first_;
  FakeHost second_;
  Settings settings_;
  net::World world_;
  net::JobKey key_ = net::JobKey::generate();
  test::FakeStore store_;
};

TEST_CASE("hierarchical: each member says whether it sees something to do", "[hierarchical]") {
  TwoHosts hosts;
  hosts.run([](const GroupSpec& group, const Services& services) {
    const auto offer_for = [&](const std::vector<int>& members, int index) {
      return make_hierarchical_factory()->offer({.id = "1", .members = members, .index = index}, services);
    };
    EXPECT_EQ(offer_for({0, 1, 2, 3}, group.index).nothing_to_do, "");
    const int mate = group.index ^ 1;
    const auto pair = offer_for({std::min(group.index, mate), std::max(group.index, mate)}, group.index % 2);
    EXPECT_EQ(pair.nothing_to_do, "all ranks are on one host");
    EXPECT(!pair.available);
    // Of three ranks, the one that is alone on its host sees no second rank there. The backend still needs it.
    const bool in_first = group.index < 2;
    const auto alone = offer_for(in_first ? std::vector<int>{group.index, 2, 3} : std::vector<int>{0, 1, group.index},
                                 in_first ? 0 : 2);
    EXPECT_EQ(alone.nothing_to_do, "no host has two of the ranks");
    EXPECT(alone.available);
  });
}

TEST_CASE("hierarchical: what one host is refused all members hear at once", "[hierarchical]") {
  TwoHosts hosts("the memory limit is reached");
  hosts.run([](const GroupSpec& group, const Services& services) {
    const TimePoint start = Clock::now();
    const auto made = make_hierarchical_factory()->create(group, services, deadline_after(60));
    EXPECT(Clock::now() - start < std::chrono::seconds(20));
    EXPECT(made.status().message().find("the memory limit is reached") != std::string::npos);
  });
}

}  // namespace
}  // namespace distrun::backend
