// The conformance suite on the backend `hierarchical`. Ranks are threads on faked hosts, with real connections between
// the hosts: TCP, or Gloo with TEST_BETWEEN_GLOO. With TEST_ON_GPUS the tensors are on fake GPUs. With TEST_ENCRYPT and
// TEST_CHECKSUM the connections between hosts are protected.
#include <condition_variable>
#include <set>

#include "runtime/backend/hierarchical/hierarchical_factory.h"
#include "runtime/backend/plugin/loader.h"
#include "runtime/backend/tcp/tcp_factory.h"
#include "runtime/base/settings.h"
#include "test/backend/conformance.h"
#include "test/backend/on_gpu.h"
#include "test/support/fake_host_link.h"
#include "test/support/fake_store.h"

extern const char* const kGlooPlugin;
extern const char* const kNcclPlugin;

namespace distrun::test {
namespace {

// Small sizes, so that small tensors take the paths of large ones. The suite is then fast under sanitizers too.
constexpr std::size_t kSlot = 4096;
constexpr std::size_t kPiece = 16 << 10;

// Ranks on each host: a lane for every rank, hosts of different sizes, a host with one rank, three hosts.
std::vector<int> hosts_of(int size) {
  if (size == 3) return {2, 1};
  if (size == 4) return {2, 2};
  if (size == 5) return {3, 2};
  return {3, 2, 3};
}

// TCP with MPI's condition: a rank's first group is complete only when every rank of the job makes a group.
class StartedByAll final : public backend::Factory {
 public:
  explicit StartedByAll(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}
  [[nodiscard]] std::string_view name() const override { return "started_by_all"; }
  [[nodiscard]] backend::Offer offer(const backend::GroupSpec& group,
                                     const backend::Services& services) const override {
    backend::Offer offer = tcp_->offer(group, services);
    offer.backend = name();
    return offer;
  }
  [[nodiscard]] bool protects(const backend::Services&) const override { return true; }
  [[nodiscard]] Result<std::unique_ptr<backend::Backend>> create(const backend::GroupSpec& group,
                                                                 const backend::Services& services,
                                                                 TimePoint deadline) const override {
    DISTRUN_RETURN_IF_ERROR(start(group.members[static_cast<std::size_t>(group.index)], deadline));
    return tcp_->create(group, services, deadline);
  }

 private:
  Status start(int rank, TimePoint deadline) const {
    const MutexLock lock(mutex_);
    started_.insert(rank);
    changed_.notify_all();
    while (started_.size() < ranks_) {
      if (Clock::now() >= deadline) return {Errc::kTimeout, "not all ranks have started it"};
      changed_.wait_until(mutex_, deadline);
    }
    return {};
  }

  const std::size_t ranks_;
  const std::unique_ptr<backend::Factory> tcp_ = backend::make_tcp_factory();
  mutable Mutex mutex_;
  mutable std::condition_variable_any changed_;
  mutable std::set<int> started_ DISTRUN_GUARDED_BY(mutex_);
};

class Hosts final : public GroupFixture {
 public:
  explicit Hosts(int size) : wait_sets_(static_cast<std::size_t>(size)), links_(static_cast<std::size_t>(size)) {
    settings_.shm_window = kSlot;
#if defined(TEST_ENCRYPT)
    settings_.encrypt = true;
#elif defined(TEST_CHECKSUM)
    settings_.checksum = true;
#endif
    world_.size = size;
#if defined(TEST_BETWEEN_GLOO)
    settings_.plugins = kGlooPlugin;
    plugins_ = backend::plugin::load_plugins(settings_, "/nonexistent");
    settings_.between_hosts = plugins_.factories.at(0)->name();
#elif defined(TEST_ON_GPUS)
    settings_.plugins = kNcclPlugin;
    plugins_ = backend::plugin::load_plugins(settings_, "/nonexistent");
    device_ = DeviceType::kCuda;
#endif
#if !defined(TEST_BETWEEN_GLOO)
    plugins_.factories.push_back(std::make_unique<StartedByAll>(size));
    settings_.between_hosts = plugins_.factories.back()->name();
#endif
    for (const int here : hosts_of(size)) {
      const int first = static_cast<int>(members_.size());
      hosts_.push_back(std::make_unique<FakeHost>(here, FakeHostOptions{.first_rank = first}));
      for (int i = 0; i < here; ++i) {
        members_.push_back(first + i);
        places_.emplace_back(hosts_.size() - 1, i);
      }
    }
  }

  Result<std::unique_ptr<backend::Backend>> create(int index, TimePoint deadline) override {
    const auto i = static_cast<std::size_t>(index);
    auto wait_set = net::WaitSet::create();
    if (!wait_set.ok()) return wait_set.status();
    wait_sets_[i] = *std::move(wait_set);
    const auto [host, place] = places_[i];
    links_[i] = hosts_[host]->link(place, wait_sets_[i].get());
    const backend::GroupSpec group = {.id = "0", .members = members_, .index = index, .device = device_};
    const backend::Services services = {.world = &world_,
                                        .key = &key_,
                                        .settings = &settings_,
                                        .store = &store_,
                                        .wait_set = wait_sets_[i].get(),
                                        .host_link = links_[i].get(),
                                        .factories = &plugins_.factories};
    const auto factory = backend::make_hierarchical_factory(kPiece);
    const backend::Offer offer = factory->offer(group, services);
    if (!offer.available) return Status(Errc::kUnsupported, offer.reason);
    if ((offer.capabilities.devices >> static_cast<unsigned>(device_) & 1U) == 0) {
      return Status(Errc::kUnsupported, "not for " + std::string(name_of(device_)) + ": " + offer.reason);
    }
    auto made = factory->create(group, services, deadline);
    if (device_ == DeviceType::kCpu || !made.ok()) return made;
    return std::unique_ptr<backend::Backend>(std::make_unique<OnGpu>(*std::move(made), index));
  }
  net::WaitSet* wait_set(int index) override { return wait_sets_[static_cast<std::size_t>(index)].get(); }

 private:
  std::vector<int> members_;
  std::vector<std::pair<std::size_t, int>> places_;  // by rank: its host and its index there
  DeviceType device_ = DeviceType::kCpu;
  Settings settings_;
  backend::plugin::Plugins plugins_;
  net::World world_;
  net::JobKey key_ = net::JobKey::generate();
  FakeStore store_;
  std::vector<std::unique_ptr<FakeHost>> hosts_;
  // Only rank i's thread touches [i]. The wait sets outlive the links.
  std::vector<std::unique_ptr<net::WaitSet>> wait_sets_;
  std::vector<std::unique_ptr<FakeHostLink>> links_;
};

}  // namespace

const Subject& subject() {
  static const Subject hierarchical = {.name = "hierarchical",
                                       .sizes = {3, 4, 5, 8},
                                       .make = [](int size) { return std::make_unique<Hosts>(size); },
                                       .forked = {},
                                       // A slot, and a piece. Three pieces use all stages.
                                       .boundaries = {kSlot, kPiece}};
  return hierarchical;
}

}  // namespace distrun::test
