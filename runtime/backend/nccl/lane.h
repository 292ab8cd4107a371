// What is done with one GPU, in one order: the operations of all groups in the order in which the engine starts them,
// which is the decision log's and therefore the same on all members. That is the total order that communicators which
// share a GPU need: NCCL's kernels occupy it until their peers' run, so two of them started in different orders could
// wait for each other for ever.
//
// One thread per GPU. It never waits for a device, a peer or NCCL: it asks, and sleeps until the bell rings. NCCL
// itself waits for the device where it makes and frees a communicator, so that happens only while nothing is on it.
// Whoever has failed is taken back on the device (ncclCommAbort), with all others that have something there, before its
// operations are reported: they are when the end of their work on the stream is reached, and nothing of the device
// touches their memory then.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/backend/nccl/communicator.h"
#include "runtime/backend/nccl/operation.h"
#include "runtime/base/annotations.h"

namespace distrun::backend::nccl_plugin {

// A group's part in a lane. Touched on the lane's thread only, but for the two that say so. Outlives the group: its
// communicator is closed when its peers close theirs, which may still use it.
struct Party {
  Party(const NcclApi& nccl, Communicator::Spec its_spec, plugin::Host its_host)
      : communicator(nccl, its_spec), spec(its_spec), host(its_host) {}
  Communicator communicator;
  const Communicator::Spec spec;
  plugin::Host host;               // only for operations: there are none when the group is gone
  plugin::AbortGate aborted;       // any thread
  std::atomic<int> in_flight = 0;  // any thread: operations that were submitted and are not complete
  Status failure;                  // the first; what is in flight and what comes fails with it
};

class Lane {
 public:
  explicit Lane(std::unique_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  ~Lane();  // when nothing is in flight
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Any thread.
  [[nodiscard]] Gpu& gpu() { return *gpu_; }
  Status start_thread();
  // `operation` and the party's group live until the token is complete.
  void submit(Party& party, const distrun_backend_operation& operation, std::uint64_t token);
  void wake() const { gpu_->ring(); }
  // The party's group goes. What it has in flight is taken back, and the future is ready when nothing here touches its
  // operations, host or store any more: at once where nothing is in flight. Its communicator closes afterwards.
  std::future<void> leave(std::shared_ptr<Party> party);
  // The job has failed: who has left has no peers any more to close with.
  void give_up();
  // Ready when all who have left are closed, in good order or at the deadline.
  std::future<void> close_all(TimePoint deadline);

  // One look at everything, on the lane's thread (the tests have their own).
  enum class Next { kNow, kSoon, kWatch, kWhenRung };
  Next turn();

 private:
  enum class Stage { kQueued, kTaken, kRunning };
  struct Task {
    Party* party;
    const distrun_backend_operation* operation;
    std::uint64_t token;
    std::unique_ptr<NcclOperation> calls = nullptr;
    Stage stage = Stage::kQueued;
    CuEvent end = nullptr;
  };
  struct Leaving {
    std::shared_ptr<Party> party;
    std::promise<void> idle;
    bool told = false;
  };
  struct Closing {
    std::promise<void> closed;
    TimePoint deadline;
  };

  void run();
  void take_new();
  void take_back_failed();
  Next advance();
  Next step(Task& task);
  Next launch(Task& task);
  void to_running(Task& task);
  bool retire();
  void watch();
  bool let_go();
  void fail(Party& party, const Status& why);
  void complete(Task& task, const Status& status);
  [[nodiscard]] bool has_tasks(const Party& party) const;

  std::unique_ptr<Gpu> gpu_;
  Mutex mutex_;
  std::vector<Task> new_tasks_ DISTRUN_GUARDED_BY(mutex_);
  std::vector<Leaving> new_leaving_ DISTRUN_GUARDED_BY(mutex_);
  std::vector<Closing> new_closing_ DISTRUN_GUARDED_BY(mutex_);
  bool give_up_ DISTRUN_GUARDED_BY(mutex_) = false;
  bool stop_ DISTRUN_GUARDED_BY(mutex_) = false;
  std::deque<Task> waiting_;  // the first may be in NCCL's hands
  std::deque<Task> running_;  // on the stream, in its order
  std::deque<Leaving> leaving_;
  std::deque<Closing> closing_;
  std::jthread thread_;
};

}  // namespace distrun::backend::nccl_plugin
