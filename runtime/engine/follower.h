// The part that every rank has. It takes its callers' submissions, follows the decision log, runs the operations in it
// and completes handles. All members read the same entries in the same order. Only the token holder may use this.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/callers/progress_token.h"
#include "runtime/engine/callers/requests.h"
#include "runtime/engine/calls_in_flight.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/monitoring/timeline.h"
#include "runtime/engine/monitoring/watchdog.h"
#include "runtime/engine/protocol/decision_log.h"
#include "runtime/engine/protocol/messages.h"
#include "runtime/engine/run/executor.h"
#include "runtime/engine/run/member.h"
#include "runtime/engine/run/process_set.h"
#include "runtime/engine/run/tensor_table.h"

namespace distrun::engine {

class Follower {
 public:
  // All arguments outlive this. The follower changes `news` when a call has ended or a handle is done.
  Follower(const EngineOptions& options, TensorTable& table, WakeWord& news);

  // Makes the global process set's backends.
  Status open();

  // --- callers' requests; `out` gets the messages for the leader ---
  void submit(std::vector<Message>& out);  // takes new tensors from the tensor table
  void forget_new();                       // takes them too, but drops them, because the job has failed
  void call(Request request, std::vector<Message>& out);

  // --- the log ---
  struct Followed {
    Status failure{};  // not ok: the job ends
    // This rank has made a set together with other ranks, and has waited for them.
    std::optional<message::SetMade> made{};
  };
  // Ignores entries of other kinds.
  Followed follow(Entry& entry);

  // --- operations ---
  // Lets backends move data. `everywhere`: as in Executor::progress().
  bool progress(bool everywhere) { return executor_.progress(done_, everywhere); }
  // Completes the handles of operations that have ended since the last call. False: there were none.
  bool complete();
  // Ends everything in flight here with `why`, once no thread uses its memory any more.
  void fail(const Status& why);
  void complete_all(const Status& why);
  // Destroys the backends of removed sets that have nothing in flight any more.
  void retire_sets();

  // --- timeline ---
  void start_recording() { executor_.observe(&recorder_); }
  void stop_recording();
  [[nodiscard]] std::optional<TimePoint> events_due() const { return recorder_.due(); }
  std::vector<TimelineEvent> take_events() { return recorder_.take(); }
  [[nodiscard]] TimelineWriterPtr new_timeline() const { return calls_.timeline(); }

  // --- what is in flight ---
  [[nodiscard]] const Executor& executor() const { return executor_; }
  [[nodiscard]] bool has_backend_lost(bool everywhere) const;
  [[nodiscard]] std::vector<LostPeer> lost_peers() const;
  // The work that has waited longest. `stopping`: since when the ranks agree where to stop. `left`: when this rank has
  // left.
  [[nodiscard]] std::optional<OldestWork> oldest_work(const std::optional<TimePoint>& stopping,
                                                      const std::optional<TimePoint>& left) const;
  [[nodiscard]] bool nothing_in_flight() const;
  // Grows whenever this rank submits a tensor, makes a call or completes one of them.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  [[nodiscard]] std::string first_tensor() const;  // one that is in flight; empty: none
  [[nodiscard]] std::string oldest_call() const;   // as first_tensor()

 private:
  Status follow(entry::Run& run);
  Status follow(entry::Fail& failed);
  Followed follow(entry::MakeSet& make);
  void follow(entry::RemoveSet& remove);
  Status follow(entry::EndCall& end);
  void drop_set(int set);

  const EngineOptions& options_;
  TensorTable& table_;
  WakeWord& news_;
  Member member_;
  ProcessSets sets_;
  Executor executor_;
  TimelineRecorder recorder_;
  CallsInFlight calls_;
  std::vector<int> retiring_;     // removed sets that still have operations in flight
  std::vector<Completion> done_;  // completed at the end of the turn
  std::vector<TensorPtr> fresh_;  // scratch
  std::uint64_t changes_ = 0;
};

}  // namespace distrun::engine
