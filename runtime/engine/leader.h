// The leader's side of the agreement, on rank 0 only. It takes the messages of all ranks, including its own, decides,
// and sends the log. Only the token holder may use this.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/agreement/coordinator.h"
#include "runtime/engine/agreement/stop_agreement.h"
#include "runtime/engine/launcher_link.h"
#include "runtime/engine/leader_link.h"
#include "runtime/engine/monitoring/timeline.h"
#include "runtime/net/control/control_plane.h"

namespace distrun::engine {

class Leader final : public LeaderLink {
 public:
  // All outlive this. `plane` is null in a job of one rank; `log` may be null.
  struct Links {
    Outbox& outbox;
    LauncherLink& launcher;
    net::ControlPlane* plane;
    Log* log;
  };
  Leader(CoordinatorOptions options, Links links);

  Effects submit(Message message) override;
  void queue(int rank, Message message) override;
  void has_read(int rank, std::uint64_t index) override { coordinator_.has_read(rank, index); }
  Effects take_message(int from, std::uint64_t index, Message& message) override;
  Entry* next_entry() override;

  Decided decide(std::span<ProcessSet* const> active) override;
  [[nodiscard]] std::optional<TimePoint> next_tick() const override { return coordinator_.next_tick(); }
  void tick(TimePoint now) override;
  void suspended(const Suspension& gap) override { coordinator_.suspended(gap); }
  Effects left(int rank) override;
  void died(const Status& why) override { coordinator_.died(why); }
  [[nodiscard]] std::vector<net::RankWait> waits() override { return coordinator_.waits(); }
  void clock_answered(int rank, const message::Pong& pong) override;
  void start_timeline(TimelineWriterPtr timeline) override;
  void write_last(std::vector<TimelineEvent> events) override { write_events(0, std::move(events)); }
  void stop_timeline() override;

 private:
  Effects take(int rank, Message& message);
  Effects stop_asked(int rank, const std::string& cause);
  Effects decide_stop();
  void drained(int rank);
  void send_log();
  void write_events(int rank, std::vector<TimelineEvent> events);
  void measure_clock(int rank);
  void ask_clock(int rank);
  void warn(const std::string& text) const;

  const int world_size_;
  const Links links_;
  Coordinator coordinator_;
  std::deque<Entry> log_;   // entries that are decided but not yet followed here
  std::size_t sent_ = 0;    // number of entries of log_ already sent to the others
  Entry current_;           // the entry that is being followed
  std::uint64_t read_ = 0;  // number of entries followed here
  StopAgreement stopping_;
  TimelineWriterPtr timeline_;        // the caller that opened it finishes it
  bool recording_unwritten_ = false;  // the file has ended, so the ranks must stop recording
  std::vector<ClockOffset> clocks_;   // by rank
};

}  // namespace distrun::engine
