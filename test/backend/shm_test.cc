// The conformance suite on the backend `shm`, its ranks threads of one faked host.
#include "runtime/backend/shm/shm_factory.h"
#include "test/backend/conformance.h"
#include "test/support/fake_host_link.h"

namespace distrun::test {
namespace {

// Small slots: everything that happens to large tensors happens to small ones, also under sanitizers.
constexpr std::size_t kSlot = 4096;

class ShmGroup final : public GroupFixture {
 public:
  explicit ShmGroup(int size) : host_(size), wait_sets_(static_cast<std::size_t>(size)), links_(wait_sets_.size()) {
    for (int rank = 0; rank < size; ++rank) members_.push_back(rank);
    settings_.shm_window = kSlot;
  }

  Result<std::unique_ptr<backend::Backend>> create(int index, TimePoint deadline) override {
    const auto i = static_cast<std::size_t>(index);
    auto wait_set = net::WaitSet::create();
    if (!wait_set.ok()) return wait_set.status();
    wait_sets_[i] = *std::move(wait_set);
    links_[i] = host_.link(index, wait_sets_[i].get());
    return backend::make_shm_factory()->create(
        {.id = "0", .members = members_, .index = index},
        {.settings = &settings_, .wait_set = wait_sets_[i].get(), .host_link = links_[i].get()}, deadline);
  }
  net::WaitSet* wait_set(int index) override { return wait_sets_[static_cast<std::size_t>(index)].get(); }

 private:
  std::vector<int> members_;
  Settings settings_;
  FakeHost host_;
  // [i] is touched by rank i's thread only. The wait sets outlive the links.
  std::vector<std::unique_ptr<net::WaitSet>> wait_sets_;
  std::vector<std::unique_ptr<FakeHostLink>> links_;
};

}  // namespace

const Subject& subject() {
  static const Subject shm = {.name = "shm",
                              .sizes = {1, 2, 3, 4, 5, 8},
                              .make = [](int size) { return std::make_unique<ShmGroup>(size); },
                              .boundaries = {56, kSlot, 4 * kSlot, 16384}};
  return shm;
}

}  // namespace distrun::test
