// The conformance suite on the backend `shm`. Ranks are threads of one faked host, or processes with a real link.
#include "runtime/backend/shm/shm_factory.h"
#include "runtime/base/settings.h"
#include "test/backend/conformance.h"
#include "test/support/fake_host_link.h"
#include "test/support/store_process.h"

namespace distrun::test {
namespace {

// Small slots, so that small tensors take the paths of large ones. The suite is then fast under sanitizers too.
constexpr std::size_t kSlot = 4096;
constexpr std::size_t kLargeOutput = 2 * kSlot;
// Compiled twice: if the members outnumber the cores they work in chains, otherwise in two phases.
constexpr bool kCrowded = DISTRUN_SHM_CROWDED;

std::vector<int> members_of(int size) {
  std::vector<int> members;
  for (int rank = 0; rank < size; ++rank) members.push_back(rank);
  return members;
}

class Threads final : public GroupFixture {
 public:
  explicit Threads(int size)
      : members_(members_of(size)),
        host_(size, {.oversubscribed = kCrowded}),
        wait_sets_(members_.size()),
        links_(members_.size()) {
    settings_.shm_window = kSlot;
  }

  Result<std::unique_ptr<backend::Backend>> create(int index, TimePoint deadline) override {
    const auto i = static_cast<std::size_t>(index);
    auto wait_set = net::WaitSet::create();
    if (!wait_set.ok()) return wait_set.status();
    wait_sets_[i] = *std::move(wait_set);
    links_[i] = host_.link(index, wait_sets_[i].get());
    return backend::make_shm_factory(kLargeOutput)
        ->create({.id = "0", .members = members_, .index = index},
                 {.settings = &settings_, .wait_set = wait_sets_[i].get(), .host_link = links_[i].get()}, deadline);
  }
  net::WaitSet* wait_set(int index) override { return wait_sets_[static_cast<std::size_t>(index)].get(); }

 private:
  std::vector<int> members_;
  Settings settings_;
  FakeHost host_;
  // Only rank i's thread touches [i]. The wait sets outlive the links.
  std::vector<std::unique_ptr<net::WaitSet>> wait_sets_;
  std::vector<std::unique_ptr<FakeHostLink>> links_;
};

// The configuration of users: the link that init makes, and windows of the default size.
class Processes final : public GroupFixture {
 public:
  explicit Processes(int size) : members_(members_of(size)), store_process_(size) {}

  Result<std::unique_ptr<backend::Backend>> create(int index, TimePoint deadline) override {
    auto wait_set = net::WaitSet::create();
    if (!wait_set.ok()) return wait_set.status();
    wait_set_ = *std::move(wait_set);
    auto store = store_process_.connect(index, deadline);
    if (!store.ok()) return store.status();
    store_ = *std::move(store);
    const net::World world = store_process_.world(index);
    auto link = net::connect_host({.world = &world,
                                   .key = &store_process_.key(),
                                   .store = store_.get(),
                                   .wait_set = wait_set_.get(),
                                   .deadline = deadline});
    if (!link.ok()) return link.status();
    link_ = *std::move(link);
    return backend::make_shm_factory()->create({.id = "0", .members = members_, .index = index},
                                               {.wait_set = wait_set_.get(), .host_link = link_.get()}, deadline);
  }
  net::WaitSet* wait_set(int) override { return wait_set_.get(); }

 private:
  std::vector<int> members_;
  StoreProcess store_process_;
  // The objects of one rank, in its process.
  std::unique_ptr<net::WaitSet> wait_set_;
  std::unique_ptr<net::StoreClient> store_;
  std::unique_ptr<net::HostLink> link_;
};

}  // namespace

const Subject& subject() {
  static const Subject shm = {.name = "shm",
                              .sizes = {1, 2, 3, 4, 5, 8},
                              .make = [](int size) { return std::make_unique<Threads>(size); },
                              .forked = [](int size) { return std::make_unique<Processes>(size); },
                              .boundaries = {56, kSlot, 4 * kSlot}};
  return shm;
}

}  // namespace distrun::test
