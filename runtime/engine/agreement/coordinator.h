// The leader's decisions: what every rank says goes in, the decision log comes out. Pure: no clock, no I/O, no threads;
// the same events give the same log. So it runs alike in production, in the unit tests and in the simulation.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/agreement/call_board.h"
#include "runtime/engine/protocol/decision_log.h"
#include "runtime/engine/protocol/messages.h"
#include "runtime/engine/protocol/suspension.h"
#include "runtime/engine/readiness/joined.h"
#include "runtime/engine/readiness/readiness.h"
#include "runtime/engine/readiness/stall.h"
#include "runtime/engine/readiness/tensor_ids.h"

namespace distrun::engine {

struct CoordinatorOptions {
  int world_size = 1;
  std::vector<std::string> hosts;  // by world rank, for texts
  std::uint64_t fusion_threshold = 0;
  std::uint64_t cache_capacity = 0;
  Duration stall_warning{};              // 0: off
  Duration stall_shutdown{};             // 0: off
  std::atomic<int>* next_set = nullptr;  // see EngineOptions
};

struct Actions {
  std::vector<Entry> entries;         // to append, in this order
  std::vector<std::string> warnings;  // stall reports
  Status abort;                       // not ok: the job ends with it and nothing more is ever appended
};

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options);

  // --- events. A message that no sound member sends ends the job (kProtocol). ---
  void submitted(int rank, const message::Submitted& request, TimePoint now);
  void ready(int rank, TensorId id, TimePoint now);
  void has_read(int rank, std::uint64_t index);  // entries read when it sent what follows
  // `refused`: the rank could not do its part of the call, which fails on all.
  void called(int rank, Call call, TimePoint now, const Status& refused = {});
  void set_made(int rank, int set, const Status& result);
  void leave(int rank);
  void drained(int rank);  // has left, and takes part in nothing any more
  void end_timeline();     // it cannot be written any more: all stop recording
  void died(const Status& why);
  void tick(TimePoint now);  // due at next_tick()
  void suspended(const Suspension& gap);

  // What follows from the events so far. Ready tensors of `busy` sets are kept back, to be fused with what else becomes
  // ready until the set has room, and those of all sets if `hold`; all else is decided at once.
  Actions act(std::span<const int> busy = {}, bool hold = false);

  // When tick() has something to report; never while nothing waits.
  [[nodiscard]] std::optional<TimePoint> next_tick() const;
  [[nodiscard]] std::uint64_t log_size() const { return log_size_; }
  [[nodiscard]] bool finished() const { return shut_down_ || !actions_.abort.ok() || dead_; }

 private:
  struct Group {  // tensors of one group that all members have submitted
    std::vector<PendingTensor*> complete;
    std::size_t seen = 0;  // complete ones and failed ones
    Status failed;
    std::set<std::size_t> elsewhere;  // members that have other groups in its place: what is left of it waits in vain
  };
  using GroupKey = std::pair<int, std::uint64_t>;  // set, digest
  struct MakingSet {
    CallBoard::Next call;
    std::size_t missing = 0;
    std::vector<bool> reported;  // by member
    Status failed;
  };

  [[nodiscard]] std::optional<std::size_t> position(int rank, int set) const;
  void add(int rank, SubmissionEvent event);
  void complete(PendingTensor& tensor, TimePoint now);
  void complete_in_group(PendingTensor& tensor, TimePoint now);
  void fail(PendingTensor& tensor, const Status& error);
  void fail_groups_of(const PendingTensor& tensor, const Status& why);
  void note_other_group(const PendingTensor& tensor, const PendingTensor& rival);
  [[nodiscard]] std::optional<Status> hopeless(const PendingTensor& tensor) const;
  void fail_hopeless();
  void fail_with_group(PendingTensor& tensor, const Status& why);
  void check_left(PendingTensor& tensor);
  void excuse_joined(PendingTensor& tensor, TimePoint now);
  void join(int rank, int set, TimePoint now);
  void append(Entry entry);
  void append_ready(std::span<const int> busy, bool hold = false);
  TensorRef refer(const PendingTensor& tensor);
  void run_calls();
  void start_call(CallBoard::Next call);
  void add_set(CallBoard::Next call);
  void remove_set(const CallBoard::Next& call);
  void end_call(const CallBoard::Next& call, const Status& result, int set = -1);
  [[nodiscard]] std::vector<int> takers_of(const Call& call) const;
  void protocol_error(int rank, const std::string& what);
  void abort(ErrorInfo error);
  // coordinator_stalls.cc
  [[nodiscard]] Duration patience() const;
  [[nodiscard]] TimePoint next_report(TimePoint since, TimePoint reported) const;
  void look_later(TimePoint now);
  void report_went_on();
  void fail_rivals(TimePoint now);
  void tick_tensors(TimePoint now);
  void tick_calls(TimePoint now);
  void end_hopeless(const CallBoard::Waiting& waiting, TimePoint now);
  bool fail_joined(const CallBoard::Waiting& waiting, TimePoint now);

  const CoordinatorOptions options_;
  std::map<int, std::vector<int>> sets_;  // id -> world ranks, ascending
  std::atomic<int> own_next_set_ = 1;
  std::atomic<int>& next_set_;  // what the next set that is made gets; never reused
  TensorIds ids_;
  Readiness pending_;
  std::vector<PendingTensor*> ready_;  // complete, not yet appended; owned by pending_
  std::map<GroupKey, Group> groups_;
  Joined joined_;
  CallBoard calls_;
  TimePoint last_join_{};
  TimePoint news_at_{};  // something was submitted, joined or called
  std::optional<TimePoint> look_at_;
  WentOn went_on_;
  std::map<int, MakingSet> making_;  // by set
  std::set<int> members_only_;       // sets that their members alone know of
  std::vector<bool> left_;           // by rank
  int left_count_ = 0;
  std::set<int> drained_;  // ranks; the log ends with the last one
  std::uint64_t log_size_ = 0;
  bool shut_down_ = false;
  bool dead_ = false;
  Actions actions_;  // not yet taken by act()
};

}  // namespace distrun::engine
