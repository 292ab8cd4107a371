// A job of n engines in this process, over the fakes. Each rank is a thread.
//     EngineJob job({.ranks = 4});
//     job.run([&](int rank, engine::Engine& engine) { ... });      // makes, runs, shuts down and destroys each engine
// Inside a rank use EXPECT and friends (ranks.h).
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/engine/engine.h"
#include "runtime/net/bytes/wait_set.h"
#include "test/support/fake_backend.h"
#include "test/support/fake_control_plane.h"
#include "test/support/fake_job_channel.h"
#include "test/support/ranks.h"

namespace distrun::test {

struct EngineJobOptions {
  int ranks = 2;
  engine::EngineSettings settings = {};
  bool spin = false;  // tests run more ranks than there are cores
  bool background_thread = true;
  FakeBackendOptions backend = {};
  bool shut_down = true;                                                      // run() calls shutdown after the body
  std::size_t messages_at_once = std::numeric_limits<std::size_t>::max();     // that one progress() delivers
  std::function<Status(int set, const std::vector<int>& members)> meet = {};  // before the backends of a set are made
  std::function<void(int rank, int set)> set_decided = {};                    // called by BackendProvider::set_decided
  // Makes the backend for CUDA tensors; rank r has GPU r. Empty: there is no such backend.
  std::function<std::unique_ptr<backend::Backend>(int set, const std::vector<int>& members, int rank, net::WaitSet&)>
      gpu_backend = {};
};

class EngineJob {
 public:
  explicit EngineJob(EngineJobOptions options)
      : options_(std::move(options)),
        control_(options_.ranks, options_.messages_at_once),
        fabric_([this](int rank) { wait_sets_[index(rank)]->wake(); }) {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      auto wait_set = net::WaitSet::create();
      DISTRUN_CHECK(wait_set.ok(), "a wait set");
      wait_sets_.push_back(*std::move(wait_set));
      planes_.push_back(control_.plane(rank));
      channels_.push_back(std::make_unique<FakeJobChannel>());
      providers_.push_back(std::make_unique<Provider>(*this, rank));
      control_.on_arrival(rank, [this, rank] { wait_sets_[index(rank)]->wake(); });
    }
  }

  std::unique_ptr<engine::Engine> make(int rank) {
    engine::EngineOptions options{.settings = options_.settings};
    options.world.rank = rank;
    options.world.size = options_.ranks;
    if (options_.gpu_backend) options.world.gpus = {rank};
    for (int r = 0; r < options_.ranks; ++r) options.hosts.push_back(host_of(r));
    options.wait_set = wait_sets_[index(rank)].get();
    options.control_plane = options_.ranks > 1 ? planes_[index(rank)].get() : nullptr;
    options.job_channel = channels_[index(rank)].get();
    options.log = &log_;
    options.spin = options_.spin;
    options.background_thread = options_.background_thread;
    options.backends = providers_[index(rank)].get();
    auto engine = engine::Engine::create(std::move(options));
    DISTRUN_CHECK(engine.ok(), engine.status().message());
    return *std::move(engine);
  }

  void run(const std::function<void(int, engine::Engine&)>& body) {
    run_ranks(options_.ranks, [&](int rank) {
      const auto engine = make(rank);
      body(rank, *engine);
      if (options_.shut_down) EXPECT_OK(engine->shutdown(deadline_after(30)));
    });
  }

  // Acts as if the process had been killed: its connections end and its operations stop. The engine object stays.
  void kill(int rank) {
    control_.mark_dead(rank);
    fabric_.kill(rank);
  }
  void tell_all(const net::JobEvent& event) {
    for (const auto& channel : channels_) channel->push(event);
  }

  [[nodiscard]] static std::string host_of(int rank) { return "node" + std::to_string(rank / 2); }
  [[nodiscard]] int size() const { return options_.ranks; }
  FakeControlGroup& control() { return control_; }
  FakeFabric& fabric() { return fabric_; }
  FakeJobChannel& channel(int rank) { return *channels_[index(rank)]; }
  net::WaitSet& wait_set(int rank) { return *wait_sets_[index(rank)]; }
  [[nodiscard]] std::vector<std::string> warnings() const {
    const MutexLock lock(log_mutex_);
    return warnings_;
  }

 private:
  class Provider final : public engine::BackendProvider {
   public:
    Provider(EngineJob& job, int rank) : job_(job), rank_(rank) {}
    Result<std::vector<std::unique_ptr<backend::Backend>>> make(int set, const std::vector<int>& members) override {
      const EngineJobOptions& options = job_.options_;
      if (options.meet) DISTRUN_RETURN_IF_ERROR(options.meet(set, members));
      std::vector<std::unique_ptr<backend::Backend>> backends;
      backends.push_back(job_.fabric_.backend(set, members, rank_, options.backend));
      if (options.gpu_backend) backends.push_back(options.gpu_backend(set, members, rank_, job_.wait_set(rank_)));
      return backends;
    }
    void set_decided(int set) override {
      if (job_.options_.set_decided) job_.options_.set_decided(rank_, set);
    }

   private:
    EngineJob& job_;
    const int rank_;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  const EngineJobOptions options_;
  std::vector<std::unique_ptr<net::WaitSet>> wait_sets_;
  FakeControlGroup control_;
  FakeFabric fabric_;
  std::vector<std::unique_ptr<net::ControlPlane>> planes_;
  std::vector<std::unique_ptr<FakeJobChannel>> channels_;
  std::vector<std::unique_ptr<Provider>> providers_;
  mutable Mutex log_mutex_;
  std::vector<std::string> warnings_ DISTRUN_GUARDED_BY(log_mutex_);
  Log log_{"warning", -1, [this](const std::string& line) {
             const MutexLock lock(log_mutex_);
             warnings_.push_back(line);
           }};
};

// An in-place allreduce of `memory`.
inline engine::Submission allreduce(const std::string& name, std::vector<float>& memory) {
  return {.name = name,
          .shape = {static_cast<std::int64_t>(memory.size())},
          .input = memory.data(),
          .output = memory.data()};
}

inline engine::HandlePtr submit(engine::Engine& engine, const engine::Submission& one) {
  auto handles = engine.submit(std::span(&one, 1));
  EXPECT_OK(handles);
  return handles->front();
}

}  // namespace distrun::test
