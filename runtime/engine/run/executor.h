// Runs what the log says: prepares each flight (flight.h), starts it when its turn comes, and completes its tensors.
// For the holder of the progress token.
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

// Called for each tensor that has run, before its handle completes; for the timeline.
class ExecutionObserver {
 public:
  virtual ~ExecutionObserver() = default;
  virtual void ran(const Tensor& tensor, TimePoint agreed, TimePoint started, TimePoint ended) = 0;
};

class Executor {
 public:
  // huge_pages: ask for them where large outputs are about to be written.
  Executor(ProcessSets& sets, bool huge_pages) : sets_(sets), huge_pages_(huge_pages) {}

  // Whether a backend of the set has such an operation, which is the same on all members. kUnsupported.
  static Status can_run(const ProcessSet& set, const Tensor& tensor);
  // Tensors that run together, of a set that this rank is in. Never blocks.
  void run(ProcessSet& set, std::vector<RunTensor> tensors, std::vector<Completion>& done);
  // Lets the backends move data that have something in flight, or all of them `everywhere`; true if anything happened.
  // One that has nothing needs its turn only after the wait set was polled, whose callbacks it may have: for what its
  // peers send ahead, and for their ends.
  bool progress(std::vector<Completion>& done, bool everywhere);

  // After this nothing new starts, every backend fails what it has, and all completions carry `why`.
  void abort(const Status& why);
  // An operation of ours failed in its backend for a reason that ends the job. Its tensors are kept until abort() is
  // called with the first cause.
  [[nodiscard]] const Status& failure() const { return failure_; }

  [[nodiscard]] bool idle() const { return flights_.empty() && waiting_.empty() && joins_.empty() && held_.empty(); }
  [[nodiscard]] bool moving() const { return !flights_.empty(); }
  [[nodiscard]] bool polls_memory() const { return in_memory_ > 0; }  // some operation in flight is worth spinning for
  [[nodiscard]] bool must_be_asked() const { return asked_ > 0; }     // some moves in progress() alone
  // All that moves does so on threads of its own, which may need the core that a spin would take.
  [[nodiscard]] bool moves_elsewhere() const { return moving() && elsewhere_ == flights_.size(); }
  [[nodiscard]] int in_flight(int set) const;
  // The sets that have something in flight, in any order.
  [[nodiscard]] std::span<ProcessSet* const> active() const { return active_; }
  // The tensor that has run longest, and since when; null if nothing runs.
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
  std::vector<ProcessSet*> active_;                                     // have something in flight; outlives what is
  std::unordered_map<std::uint64_t, std::unique_ptr<Flight>> flights_;  // by token
  // On devices, or of exclusive backends, behind an operation of one; in the order of the log, so that all members give
  // their devices, and such a backend's library, the same work in the same order.
  std::deque<std::unique_ptr<Flight>> waiting_;
  // A join ends when what was before it has: after it, names that a counter made come again.
  std::vector<std::unique_ptr<Flight>> joins_;
  bool exclusive_ = false;      // such an operation is in flight
  std::size_t on_devices_ = 0;  // flights
  std::uint64_t next_token_ = 1;
  std::vector<ProcessSet*> turn_;              // scratch
  std::vector<backend::Completed> completed_;  // by backends
  std::size_t collected_ = 0;                  // how many of them are no flights any more
  std::vector<Completion> held_;               // failed, waiting for the first cause
  Status failure_;
  Status aborted_;
  // Flights, by what moves them.
  std::size_t in_memory_ = 0;
  std::size_t asked_ = 0;
  std::size_t elsewhere_ = 0;
  std::size_t by_descriptors_ = 0;
  ExecutionObserver* observer_ = nullptr;
};

}  // namespace distrun::engine
