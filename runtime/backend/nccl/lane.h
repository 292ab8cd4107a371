// What is done with one GPU, in one order: the operations of all groups in the order in which the engine starts them,
// which is the decision log's and therefore the same on all members. That is the total order that communicators which
// share a GPU need: NCCL's kernels occupy it until their peers' run, so two of them started in different orders could
// wait for each other for ever.
//
// One thread per GPU. It never waits for a device, a peer or NCCL: it asks, and sleeps until the bell rings. Whoever
// has failed is taken back on the device (ncclCommAbort) before its operations are reported: they are when the end of
// their work on the stream is reached, and nothing of the device touches their memory then.
#pragma once

#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/backend/nccl/communicator.h"
#include "runtime/backend/nccl/flight.h"

namespace distrun::backend::nccl_plugin {

// A group's part in a lane. Touched on the lane's thread only, but for `aborted`.
struct Party {
  Party(const NcclApi& nccl, Communicator::Spec its_spec, plugin::Host its_host)
      : communicator(nccl, its_spec), spec(its_spec), host(its_host) {}
  Communicator communicator;
  const Communicator::Spec spec;
  plugin::Host host;
  plugin::AbortGate aborted;  // any thread
  Status failure;             // the first; what is in flight and what comes fails with it
};

class Lane {
 public:
  explicit Lane(std::unique_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  ~Lane();  // after the last party has left
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Any thread.
  [[nodiscard]] Gpu& gpu() { return *gpu_; }
  void start_thread();
  // `operation` and the party live until the token is complete.
  void submit(Party& party, const distrun_backend_operation& operation, std::uint64_t token);
  void wake() const { gpu_->ring(); }
  // Drops what the party has in flight, which is waited for, and closes its communicator. The future is ready when
  // nothing here touches the party any more.
  std::future<void> leave(Party& party);

  // One look at everything, on the lane's thread (the tests have their own).
  enum class Next { kNow, kSoon, kWatch, kWhenRung };
  Next turn();

 private:
  enum class Stage { kQueued, kTaken, kRunning };
  struct Job {
    Party* party;
    const distrun_backend_operation* operation;
    std::uint64_t token;
    std::unique_ptr<Flight> flight = nullptr;
    Stage stage = Stage::kQueued;
    CuEvent end = nullptr;
  };
  struct Leaving {
    Party* party;
    std::promise<void> left;
    TimePoint deadline;
  };

  void run();
  void take_new();
  void take_back_failed();
  Next advance();
  Next step(Job& job);
  Next launch(Job& job);
  void to_running(Job& job);
  bool retire();
  void watch();
  bool let_go();
  void fail(Party& party, const Status& why);
  void complete(Job& job, const Status& status);
  [[nodiscard]] bool has_jobs(const Party& party) const;

  std::unique_ptr<Gpu> gpu_;
  std::mutex mutex_;  // for the next three
  std::vector<Job> new_jobs_;
  std::vector<Leaving> new_leaving_;
  bool stop_ = false;
  std::deque<Job> waiting_;  // the first may be in NCCL's hands
  std::deque<Job> running_;  // on the stream, in its order
  std::deque<Leaving> leaving_;
  std::jthread thread_;
};

}  // namespace distrun::backend::nccl_plugin
