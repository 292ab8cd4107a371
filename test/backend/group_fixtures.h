// Group fixtures for backends that need only a store and a wait set. Ranks are threads with a store in memory, or
// processes with a store server in another process.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/backend/factory.h"
#include "runtime/base/settings.h"
#include "test/backend/conformance.h"
#include "test/support/fake_store.h"
#include "test/support/store_process.h"

namespace distrun::test {

using BackendMaker = std::function<Result<std::unique_ptr<backend::Backend>>(const backend::GroupSpec&,
                                                                             const backend::Services&, TimePoint)>;

inline std::vector<int> members_of(int size) {
  std::vector<int> members;
  for (int rank = 0; rank < size; ++rank) members.push_back(rank);
  return members;
}

class ThreadGroup final : public GroupFixture {
 public:
  // If `settings` is not null, each rank is on a different host.
  ThreadGroup(int size, BackendMaker make, const Settings* settings = nullptr)
      : make_(std::move(make)), members_(members_of(size)), settings_(settings) {
    wait_sets_.resize(members_.size());
    if (settings != nullptr) world_.size = size;
  }

  Result<std::unique_ptr<backend::Backend>> create(int index, TimePoint deadline) override {
    auto made = net::WaitSet::create();
    if (!made.ok()) return made.status();
    wait_sets_[static_cast<std::size_t>(index)] = *std::move(made);
    return make_({.id = "0", .members = members_, .index = index},
                 {.world = &world_, .key = &key_, .settings = settings_, .store = &store_, .wait_set = wait_set(index)},
                 deadline);
  }
  net::WaitSet* wait_set(int index) override { return wait_sets_[static_cast<std::size_t>(index)].get(); }
  FakeStore& store() { return store_; }

 private:
  BackendMaker make_;
  std::vector<int> members_;
  const Settings* settings_;
  net::World world_;
  net::JobKey key_ = net::JobKey::generate();
  FakeStore store_;
  std::vector<std::unique_ptr<net::WaitSet>> wait_sets_;  // only rank i's thread touches [i]
};

using Backends = std::vector<std::unique_ptr<backend::Backend>>;

// The backends of all members, for a test that drives them from one thread.
inline Backends create_all(ThreadGroup& group, int size) {
  Backends backends(static_cast<std::size_t>(size));
  std::vector<std::thread> ranks;
  for (int index = 0; index < size; ++index) {
    ranks.emplace_back([&group, &backends, index] {
      auto made = group.create(index, deadline_after(60));
      if (made.ok()) backends[static_cast<std::size_t>(index)] = *std::move(made);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& backend : backends) REQUIRE(backend != nullptr);
  return backends;
}

class ProcessGroup final : public GroupFixture {
 public:
  ProcessGroup(int size, BackendMaker make)
      : make_(std::move(make)), members_(members_of(size)), store_process_(size) {}

  Result<std::unique_ptr<backend::Backend>> create(int index, TimePoint deadline) override {
    auto made = net::WaitSet::create();
    if (!made.ok()) return made.status();
    wait_set_ = *std::move(made);
    auto store = store_process_.connect(index, deadline);
    if (!store.ok()) return store.status();
    store_ = *std::move(store);
    world_ = store_process_.world(index);
    return make_({.id = "0", .members = members_, .index = index},
                 {.world = &world_,
                  .key = &store_process_.key(),
                  .store = store_.get(),
                  .wait_set = wait_set_.get(),
                  .local_host = store_->local_host()},
                 deadline);
  }
  net::WaitSet* wait_set(int) override { return wait_set_.get(); }

 private:
  BackendMaker make_;
  std::vector<int> members_;
  StoreProcess store_process_;
  // The objects that create() made for the rank of this process.
  net::World world_;
  std::unique_ptr<net::WaitSet> wait_set_;
  std::unique_ptr<net::StoreClient> store_;
};

}  // namespace distrun::test
