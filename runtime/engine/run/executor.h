// Runs the operations in the log: prepares each flight (flight.h), starts it in its turn, and completes its tensors.
// Only the token holder may use this.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/base/clock.h"
#include "runtime/engine/run/flight.h"
#include "runtime/engine/run/member.h"
#include "runtime/engine/run/process_set.h"
#include "runtime/engine/run/tensor_table.h"

namespace distrun::engine {

// Called for each tensor that has run, before its handle completes. For the timeline.
class ExecutionObserver {
 public:
  virtual ~ExecutionObserver() = default;
  virtual void ran(const Tensor& tensor, TimePoint agreed, TimePoint started, TimePoint ended) = 0;
};

class Executor {
 public:
  // huge_pages: request them where large outputs are about to be written.
  Executor(ProcessSets& sets, bool huge_pages) : sets_(sets), huge_pages_(huge_pages) {}

  // Checks whether a backend of the set has such an operation. The result is the same on all members. kUnsupported.
  static Status can_run(const ProcessSet& set, const Tensor& tensor);
  // Runs tensors together. This rank must be a member of the set. Never blocks.
  void run(ProcessSet& set, std::vector<RunTensor> tensors, std::vector<Completion>& done);
  // Lets backends move data: those that have something in flight, or all of them if `everywhere`. True if anything
  // happened. A backend with nothing in flight needs its turn only after the wait set was polled, because the poll may
  // have run its callbacks. It then sees data that its peers send ahead, and their ends.
  bool progress(std::vector<Completion>& done, bool everywhere);

  // Call this once with the first cause. Nothing new starts after it. Every backend fails its operations, and all
  // completions carry `why`.
  void abort(const Status& why);
  // The error of an operation of this rank that failed in its backend and ends the job. Its tensors are kept until
  // abort() is called with the first cause.
  [[nodiscard]] const Status& failure() const { return failure_; }

  [[nodiscard]] bool idle() const { return flights_.empty() && waiting_.empty() && joins_.empty() && held_.empty(); }
  [[nodiscard]] bool moving() const { return !flights_.empty(); }
  [[nodiscard]] bool polls_memory() const { return in_memory_ > 0; }  // some operation in flight is worth a spin
  [[nodiscard]] bool must_be_asked() const { return asked_ > 0; }     // some operation moves only in progress()
  // True if threads of backends move everything in flight. They may need the core that a spin would take.
  [[nodiscard]] bool moves_elsewhere() const { return moving() && elsewhere_ == flights_.size(); }
  [[nodiscard]] int in_flight(int set) const;
  // The sets that have something in flight, in any order.
  [[nodiscard]] std::span<ProcessSet* const> active() const { return active_; }
  // The tensor that has run longest. Sets `since` to its start. Null if nothing runs.
  [[nodiscard]] const Tensor* oldest(TimePoint& since) const;
  void observe(ExecutionObserver* observer) { observer_ = observer; }

 private:
  void start(std::unique_ptr<Flight> flight, std::vector<Completion>& done);
  void start_waiting(std::vector<Completion>& done);
  void finish_joins(std::vector<Completion>& done);
  void finish(Flight& flight, const Status& status, std::vector<Completion>& done);
  bool progress(ProcessSet& set, std::vector<Completion>& done);
  void collect(backend::Backend& backend, std::vector<Completion>& done);
  std::size_t& flights_like(const backend::Capabilities& can);

  ProcessSets& sets_;
  const bool huge_pages_;
  std::vector<ProcessSet*> active_;  // sets with something in flight; declared first, because flights use it
  std::unordered_map<std::uint64_t, std::unique_ptr<Flight>> flights_;  // by token
  // Operations on devices or of exclusive backends, which wait until an exclusive one has ended. They start in the
  // order of the log. So all members give the same work in the same order to their devices and to such a backend's
  // library.
  std::deque<std::unique_ptr<Flight>> waiting_;
  // A join ends when all operations before it have ended. After it, names that a counter made may be used again.
  std::vector<std::unique_ptr<Flight>> joins_;
  bool exclusive_ = false;      // an operation of an exclusive backend is in flight
  std::size_t on_devices_ = 0;  // number of flights
  std::uint64_t next_token_ = 1;
  std::vector<ProcessSet*> turn_;              // scratch
  std::vector<backend::Completed> completed_;  // as reported by backends
  std::size_t collected_ = 0;                  // how many of them are handled
  std::vector<Completion> held_;               // failed tensors that wait for the first cause
  Status failure_;
  Status aborted_;
  // Number of flights, by what moves them.
  std::size_t in_memory_ = 0;
  std::size_t asked_ = 0;
  std::size_t elsewhere_ = 0;
  std::size_t by_descriptors_ = 0;
  ExecutionObserver* observer_ = nullptr;
};

}  // namespace distrun::engine
