// How this rank reaches the leader: at rank 0 the leader is here (leader.h), elsewhere messages go over the wire. Token
// holder.
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
  // What this rank does because of what it heard.
  struct Heard {
    Status failure{};          // not ok: the job ends
    bool tell_others = false;  // of the failure
    bool follow = false;       // there are entries to follow
    bool hold_stop = false;    // calls of should_stop() wait, and the leader gets their number
    std::optional<std::uint64_t> stop_at{};
    int drained = -1;  // nobody needs this rank any more
    int wait_of = -1;  // this rank has told how it waits
    message::WaitTold wait{};
    std::optional<std::uint64_t> tell_wait{};  // tell it, in answer to this question
  };

  virtual ~LeaderLink() = default;
  // What this rank says to the leader, in the order of what happened.
  virtual Heard tell(Message message) = 0;
  // To one rank (-1: all), as far as this rank may talk to it: members only talk to the leader.
  virtual void say(int rank, Message message) = 0;
  // A frame says that `rank` had read `index` entries, or, from the leader, where its entries begin in the log.
  virtual void has_read(int /*rank*/, std::uint64_t /*index*/) {}
  virtual Heard hear(int from, std::uint64_t index, Message& message) = 0;
  // The next entry of the log that this rank is to follow; null: none yet. It is valid until the next call.
  virtual Entry* next_entry() = 0;

  // --- where the leader is; elsewhere nothing happens ---
  struct Decided {
    Status abort{};  // not ok: the job ends, once the entries have been followed
    bool warned = false;
  };
  // `active`: the sets that have operations in flight here.
  virtual Decided decide(std::span<ProcessSet* const> /*active*/) { return {}; }
  [[nodiscard]] virtual std::optional<TimePoint> next_tick() const { return std::nullopt; }
  virtual void tick(TimePoint /*now*/) {}
  virtual void suspended(const Suspension& /*gap*/) {}
  virtual Heard left(int /*rank*/) { return {}; }  // the log says so
  virtual void died(const Status& /*why*/) {}
  // Who waits for whom now.
  [[nodiscard]] virtual std::vector<net::RankWait> waits() { return {}; }
  virtual void clock_answered(int /*rank*/, const message::Pong& /*pong*/) {}
  virtual void start_timeline(TimelineWriterPtr /*timeline*/) {}
  // This rank's events at its end. What other ranks have recorded since they made the call belongs to no file.
  virtual void write_last(std::vector<TimelineEvent> /*events*/) {}
  virtual void stop_timeline() {}
};

// On every rank but 0.
class RemoteLeader final : public LeaderLink {
 public:
  explicit RemoteLeader(Outbox& outbox) : outbox_(outbox) {}

  Heard tell(Message message) override;
  void say(int rank, Message message) override;
  Heard hear(int from, std::uint64_t index, Message& message) override;
  Entry* next_entry() override;

 private:
  Outbox& outbox_;
  std::vector<Entry> entries_;  // received, and not all followed yet
  std::size_t followed_ = 0;    // of entries_
  std::uint64_t expected_ = 0;  // index of the entry that comes next over the wire
};

}  // namespace distrun::engine
