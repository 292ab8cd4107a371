// The conformance suite on the backend `tcp`.
#include "runtime/backend/tcp/ring.h"
#include "runtime/backend/tcp/tcp_backend.h"
#include "runtime/backend/tcp/tcp_factory.h"
#include "test/backend/conformance.h"
#include "test/support/fake_store.h"
#include "test/support/store_process.h"

namespace distrun::test {
namespace {

// Small chunks: everything that happens to large tensors happens to small ones, also under sanitizers. The processes
// run with what users run with.
constexpr backend::tcp::Tuning kTuning{.chunk_bytes = 4096, .window = 3, .gather_bytes = 2048};

std::vector<int> members_of(int size) {
  std::vector<int> members;
  for (int rank = 0; rank < size; ++rank) members.push_back(rank);
  return members;
}

class Threads final : public GroupFixture {
 public:
  explicit Threads(int size) : members_(members_of(size)), wait_sets_(members_.size()) {}

  Result<std::unique_ptr<backend::Backend>> create(int index, TimePoint deadline) override {
    auto wait_set = net::WaitSet::create();
    if (!wait_set.ok()) return wait_set.status();
    wait_sets_[static_cast<std::size_t>(index)] = *std::move(wait_set);
    auto ring = backend::tcp::make_ring(
        {.id = "0", .members = members_, .index = index},
        {.world = &world_, .key = &key_, .store = &store_, .wait_set = this->wait_set(index)}, deadline);
    if (!ring.ok()) return ring.status();
    return backend::tcp::TcpBackend::create(
        {.ring = *std::move(ring), .wait_set = this->wait_set(index), .tuning = kTuning});
  }
  net::WaitSet* wait_set(int index) override { return wait_sets_[static_cast<std::size_t>(index)].get(); }

 private:
  std::vector<int> members_;
  net::World world_;
  net::JobKey key_ = net::JobKey::generate();
  FakeStore store_;
  std::vector<std::unique_ptr<net::WaitSet>> wait_sets_;  // [i] is touched by rank i's thread only
};

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
    world_ = store_process_.world(index);
    return backend::make_tcp_factory()->create({.id = "0", .members = members_, .index = index},
                                               {.world = &world_,
                                                .key = &store_process_.key(),
                                                .store = store_.get(),
                                                .wait_set = wait_set_.get(),
                                                .local_host = store_->local_host()},
                                               deadline);
  }
  net::WaitSet* wait_set(int) override { return wait_set_.get(); }

 private:
  std::vector<int> members_;
  StoreProcess store_process_;
  // What create() made for the rank whose process this is.
  net::World world_;
  std::unique_ptr<net::WaitSet> wait_set_;
  std::unique_ptr<net::StoreClient> store_;
};

}  // namespace

const Subject& subject() {
  static const Subject tcp = {.name = "tcp",
                              .sizes = {1, 2, 3, 4, 5, 8},
                              .make = [](int size) { return std::make_unique<Threads>(size); },
                              .forked = [](int size) { return std::make_unique<Processes>(size); },
                              // Gathered by 8, 4 and 2 ranks; a chunk; a window of two and of four ranks' chunks.
                              .boundaries = {256, 512, 1024, 4096, 24576, 49152}};
  return tcp;
}

}  // namespace distrun::test
