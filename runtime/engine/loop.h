// The engine's turn: takes what callers submitted and what peers said, decides (at the leader), follows the log, lets
// the backends move, completes handles. Everything here is for the holder of the progress token, except where said.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/agreement/coordinator.h"
#include "runtime/engine/agreement/stop_agreement.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/monitoring/failure_detector.h"
#include "runtime/engine/monitoring/timeline.h"
#include "runtime/engine/monitoring/timeline_writer.h"
#include "runtime/engine/monitoring/watchdog.h"
#include "runtime/engine/progress_token.h"
#include "runtime/engine/requests.h"
#include "runtime/engine/run/executor.h"
#include "runtime/engine/run/member.h"
#include "runtime/engine/run/outbox.h"
#include "runtime/engine/run/process_set.h"
#include "runtime/engine/run/tensor_table.h"
#include "runtime/engine/stop_point.h"

namespace distrun::engine {

class EngineLoop {
 public:
  // What is shared with callers; all outlive the loop.
  struct Shared {
    TensorTable& table;
    Requests& requests;
    ProgressToken& token;
    StopPoint& stop;
  };
  EngineLoop(const EngineOptions& options, Shared shared);
  ~EngineLoop();

  // Makes the global process set's backends and watches the launcher.
  Status open();

  // Turns until `satisfied`, blocking in the wait set when there is nothing to do: kOk, kTimeout or kInterrupted. For
  // the engine's thread it also returns when a caller wants the token. An exception ends the job, as any failure does;
  // one that comes when it has ended is passed on.
  Status drive(ProgressToken::Holder who, const std::function<bool()>& satisfied, TimePoint deadline);
  // Ends what is left: every handle in flight completes with `why`. Peers are not told; they see this rank go.
  void close(const Status& why);

  // --- any thread ---
  // There is something new for the loop: ends its sleep, if it sleeps.
  void poke();
  // Nothing will happen any more: all have left, or the job failed and every handle is complete.
  [[nodiscard]] bool over() const { return over_.load(std::memory_order_acquire); }
  [[nodiscard]] const Status& outcome() const { return outcome_; }  // once over(): ok after a shutdown by all

 private:
  // What an idle loop has spent since something moved.
  struct Patience {
    TimePoint until = TimePoint::min();  // the end of the spin; min() before it starts
    int yields = 0;
  };

  struct CallInFlight {
    Call call;
    std::shared_ptr<CallTicket> ticket;
    TimelineWriterPtr timeline;  // at the leader, of one that starts it
    TimePoint since;
    bool running = false;  // agreed on: the set is being made; an unordered one knows its number (call.set) by then
  };

  // loop.cc
  Status turn_until(ProgressToken::Holder who, const std::function<bool()>& satisfied, TimePoint deadline);
  bool turn();
  void take_local();
  void submit_fresh(std::vector<Message>& messages);
  void take_call_of(Request& request, std::vector<Message>& messages);
  void announce(std::vector<Message> messages);
  void complete_done();
  Status block(const std::function<bool()>& enough, TimePoint until);
  bool linger(ProgressToken::Holder who, Patience& patience, TimePoint deadline);
  bool give_up_core(Patience& patience, TimePoint deadline);
  bool spin(bool caller, TimePoint& until);
  bool ask_again(TimePoint deadline);
  // loop_messages.cc
  bool receive();
  void hear(int from, std::uint64_t index, Message& message);
  void hear_member(int rank, Message& message, TimePoint now);
  void hear_drained(int rank);
  void hear_leader(std::uint64_t index, Message& message);
  bool decide();
  bool follow_log();
  void tell_log();
  [[nodiscard]] bool makes_here(const Entry& entry) const;
  bool send();
  // loop_entries.cc
  void read(Entry& entry);
  void follow(entry::Run& run);
  void follow(entry::Fail& failed);
  void follow(entry::Evict& evict);
  void follow(entry::MakeSet& make);
  void follow(entry::RemoveSet& remove);
  void follow(entry::EndCall& end);
  void follow(entry::Timeline& timeline);
  void follow(entry::Left& left);
  void follow(entry::Shutdown& shutdown);
  std::optional<CallInFlight> take_call(const entry::EndCall& end);
  void retire_sets();
  void drop_set(int set);
  // loop_reports.cc
  [[nodiscard]] TimePoint next_timer() const;
  void run_timers(TimePoint now);
  void see_clock(TimePoint now);
  void look_around();
  Result<int> poll(TimePoint until, const net::WaitSet::LookAgain& look_again = nullptr);
  [[nodiscard]] std::optional<OldestWork> oldest_work() const;
  [[nodiscard]] const CallInFlight* oldest_call() const;
  void say(int rank, Message message);
  void warn(const std::string& text);
  void answer(int from, const message::Ping& ping);
  void hear_answer(int from, const message::Pong& pong);
  void start_timeline();
  void stop_timeline();
  void ship_events();
  void write_events(int rank, std::vector<TimelineEvent> events);
  void measure_clock(int rank);
  void ask_clock(int rank);
  // loop_stop.cc
  void ask_to_stop(const std::string& cause);
  void hear_stop(int rank, const message::StopAsked& asked);
  void decide_stop();
  void stop_at(std::uint64_t call);
  // loop_failure.cc
  bool check_health();
  void suspect_lost_peers(TimePoint now);
  void suspect_peer(int rank, const std::string& sign, TimePoint now);
  void on_launcher(std::uint32_t epoll_events);
  void fail(const Status& why, bool tell);
  void fail_here(ErrorInfo info);
  void fail_by_exception(Errc code, const std::string& what);
  void end_all(const Status& why);
  void tell_launcher(const Status& why);
  bool drain();
  bool end_if_done();
  void go_if_confirmed();

  const EngineOptions& options_;
  Shared shared_;
  const bool leader_;
  Member member_;
  ProcessSets sets_;
  Executor executor_;
  Outbox outbox_;
  std::optional<Coordinator> coordinator_;  // at the leader
  std::deque<Entry> log_;                   // at the leader: decided, and not read here yet
  std::size_t told_ = 0;                    // so many of them are on their way to the others
  StopAgreement stopping_;                  // at the leader
  FailureDetector detector_;
  Watchdog watchdog_;
  TimelineRecorder recorder_;
  TimelineWriterPtr timeline_;       // at the leader; who made the calls finishes it
  bool recording_in_vain_ = false;   // at the leader: the file has ended, so the ranks are to stop
  std::vector<ClockOffset> clocks_;  // at the leader, by rank

  std::vector<TensorPtr> fresh_;        // scratch
  std::vector<Completion> done_;        // to be completed at the end of the turn
  net::Received received_;              // scratch
  std::deque<CallInFlight> calls_;      // in order
  std::deque<CallInFlight> unordered_;  // unordered calls
  std::vector<int> retiring_;           // removed sets that still run something
  bool everywhere_ = true;              // the wait set is polled, or was since a turn that found nothing to do
  std::uint32_t turns_ = 0;
  TimePoint seen_ = Clock::now();  // the clock, last
  Duration spin_budget_;           // of a caller
  std::uint64_t read_ = 0;         // log entries
  bool launcher_watched_ = false;
  bool log_ended_ = false;                          // the Shutdown entry was read, or this rank goes before the others
  std::vector<std::shared_ptr<CallTicket>> going_;  // callers that wait for leave to go before the others
  std::optional<TimePoint> stopping_since_;         // the ranks agree where to stop
  std::optional<TimePoint> left_at_;                // this rank has said that it leaves
  bool drained_ = false;                            // and that nothing of it is in flight any more
  bool stays_ = false;                              // at the leader: the warning that it waits has been given
  Status failed_;                                   // the job ends with it

  std::atomic<bool> sleeping_{false};  // the token holder blocks, or is about to
  std::atomic<bool> over_{false};
  Status outcome_;  // written before over_
};

}  // namespace distrun::engine
