// All work on one GPU, in one order: the operations of all groups in the order in which the engine starts them. That is
// the order of the decision log, so it is the same on all members. Communicators that share a GPU need this total
// order: NCCL's kernels occupy the GPU until the peers' kernels run, so two kernels in different orders could deadlock.
//
// There is one thread per GPU. It never waits for a device, a peer or NCCL. It polls them, and sleeps until the bell
// rings. NCCL itself waits for the device when it creates or frees a communicator, so this happens only while nothing
// runs on the device. A failed communicator is aborted on the device (ncclCommAbort), together with all others that
// have work there. Its operations are reported after that, when the end of their work on the stream is reached. Then
// the device no longer touches their memory.
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

// A group's part in a lane. Only the lane's thread uses it, except two fields. It outlives the group: the communicator
// closes when its peers close theirs, because they may still use it.
struct LaneGroup {
  LaneGroup(const NcclApi& nccl, Communicator::Spec its_spec, plugin::Host its_host)
      : communicator(nccl, its_spec), spec(its_spec), host(its_host) {}
  Communicator communicator;
  const Communicator::Spec spec;
  plugin::Host host;               // only for operations; a closed group has none
  plugin::AbortGate aborted;       // any thread
  std::atomic<int> in_flight = 0;  // any thread: operations that are submitted and not complete
  Status failure;                  // the first failure; current and later operations fail with it
};

class Lane {
 public:
  explicit Lane(std::unique_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  ~Lane();  // call it when nothing is in flight
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Any thread may call the following.
  [[nodiscard]] Gpu& gpu() { return *gpu_; }
  Status start_thread();
  // `operation` and the group's backend must live until the token is complete.
  void submit(LaneGroup& lane_group, const distrun_backend_operation& operation, std::uint64_t token);
  void wake() const { gpu_->ring(); }
  // The group's backend is closing. Its operations in flight are aborted. The future is ready when nothing here uses
  // its operations, host or store any more: at once if nothing is in flight. The communicator closes after that.
  std::future<void> leave(std::shared_ptr<LaneGroup> lane_group);
  // The job has failed: the groups that have left have no peers to close with.
  void give_up();
  // The future is ready when all groups that have left are closed, normally or at the deadline.
  std::future<void> close_all(TimePoint deadline);

  // One pass over all work, on the lane's thread. (Tests call it on their own thread.)
  enum class Next { kNow, kSoon, kWatch, kWhenRung };
  Next turn();

 private:
  enum class Stage { kQueued, kTaken, kRunning };
  struct Task {
    LaneGroup* lane_group;
    const distrun_backend_operation* operation;
    std::uint64_t token;
    std::unique_ptr<NcclOperation> calls = nullptr;
    Stage stage = Stage::kQueued;
    CuEvent end = nullptr;
  };
  struct Leaving {
    std::shared_ptr<LaneGroup> lane_group;
    std::promise<void> idle;
    bool idle_set = false;
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
  void fail(LaneGroup& lane_group, const Status& why);
  void complete(Task& task, const Status& status);
  [[nodiscard]] bool has_tasks(const LaneGroup& lane_group) const;

  std::unique_ptr<Gpu> gpu_;
  Mutex mutex_;
  std::vector<Task> new_tasks_ DISTRUN_GUARDED_BY(mutex_);
  std::vector<Leaving> new_leaving_ DISTRUN_GUARDED_BY(mutex_);
  std::vector<Closing> new_closing_ DISTRUN_GUARDED_BY(mutex_);
  bool give_up_ DISTRUN_GUARDED_BY(mutex_) = false;
  bool stop_ DISTRUN_GUARDED_BY(mutex_) = false;
  std::deque<Task> waiting_;  // NCCL may be working on the first one
  std::deque<Task> running_;  // on the stream, in this order
  std::deque<Leaving> leaving_;
  std::deque<Closing> closing_;
  std::jthread thread_;
};

}  // namespace distrun::backend::nccl_plugin
