// This rank's link to the leader. On rank 0 the leader is in this process (leader.h); on other ranks messages go over
// the network. Only the token holder may use this.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/monitoring/timeline_writer.h"
#include "runtime/engine/protocol/messages.h"
#include "runtime/engine/protocol/suspension.h"
#include "runtime/engine/run/outbox.h"
#include "runtime/engine/run/process_set.h"

namespace distrun::engine {

class LeaderLink {
 public:
  // Actions for this rank, as the result of a message.
  struct Effects {
    Status failure{};               // not ok: the job ends
    bool report_to_others = false;  // send the failure to the other ranks
    bool follow = false;            // there are log entries to follow
    bool hold_stop = false;         // hold calls of should_stop(), and send their count to the leader
    std::optional<std::uint64_t> stop_at{};
    int drained = -1;  // the rank that has drained: no rank waits for it any more
    int wait_of = -1;  // this rank has reported how it waits
    message::WaitAnswer wait{};
    std::optional<std::uint64_t> report_wait{};  // report how this rank waits, as the answer to this round
  };

  virtual ~LeaderLink() = default;
  // Sends a message from this rank to the leader. Messages must come in the order of their events.
  virtual Effects submit(Message message) = 0;
  // Sends a message to one rank (-1: all ranks that this rank may talk to). Members may only talk to the leader.
  virtual void queue(int rank, Message message) = 0;
  // Called for each received frame. From a member, `index` is how many log entries `rank` had read. From the leader, it
  // is the position of its first entry in the log.
  virtual void has_read(int /*rank*/, std::uint64_t /*index*/) {}
  virtual Effects take_message(int from, std::uint64_t index, Message& message) = 0;
  // The next entry of the log for this rank to follow. Null: there is none yet. Valid until the next call.
  virtual Entry* next_entry() = 0;

  // --- on rank 0 only; on other ranks these do nothing ---
  struct Decided {
    Status abort{};  // not ok: the job ends after the entries have been followed
    bool warned = false;
  };
  // `active`: the sets that have operations in flight here.
  virtual Decided decide(std::span<ProcessSet* const> /*active*/) { return {}; }
  [[nodiscard]] virtual std::optional<TimePoint> next_tick() const { return std::nullopt; }
  virtual void tick(TimePoint /*now*/) {}
  virtual void suspended(const Suspension& /*gap*/) {}
  virtual Effects left(int /*rank*/) { return {}; }  // the log has this entry
  virtual void died(const Status& /*why*/) {}
  // Lists which ranks wait, and for which ranks.
  [[nodiscard]] virtual std::vector<net::RankWait> waits() { return {}; }
  virtual void clock_answered(int /*rank*/, const message::Pong& /*pong*/) {}
  virtual void start_timeline(TimelineWriterPtr /*timeline*/) {}
  // Writes this rank's last events. Events that other ranks recorded after they had made the call are not written.
  virtual void write_last(std::vector<TimelineEvent> /*events*/) {}
  virtual void stop_timeline() {}
};

// The link on every rank except rank 0.
class RemoteLeader final : public LeaderLink {
 public:
  explicit RemoteLeader(Outbox& outbox) : outbox_(outbox) {}

  Effects submit(Message message) override;
  void queue(int rank, Message message) override;
  Effects take_message(int from, std::uint64_t index, Message& message) override;
  Entry* next_entry() override;

 private:
  Outbox& outbox_;
  std::vector<Entry> entries_;  // received; some may not have been followed yet
  std::size_t followed_ = 0;    // how many entries of entries_ have been followed
  std::uint64_t expected_ = 0;  // log index of the next entry from the leader
};

}  // namespace distrun::engine
