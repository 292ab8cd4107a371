// The leader's ids: which tensors get one, and what the ones stand for that members say. Pure; members follow the log.
//
// While there is room, a tensor gets an id when it runs. When there is none, it gets one only if it has run before, and
// after the records that it displaces were used last. So names that never come again displace nothing that does, and
// of more names in a cycle than there is room for, as many stay known as there is room for.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/engine/protocol/decision_log.h"
#include "runtime/engine/protocol/response_cache.h"
#include "runtime/engine/readiness/readiness.h"

namespace distrun::engine {

// What ran lately and got no id, by digest. Two of one digest only give an id earlier or later than else.
class RecentRuns {
 public:
  // When it ran last; 0: never, or long ago.
  [[nodiscard]] std::uint64_t last(std::uint64_t digest) const;
  void note(std::uint64_t digest, std::uint64_t now);
  [[nodiscard]] std::size_t size() const { return order_.size(); }

 private:
  std::unordered_map<std::uint64_t, std::uint64_t> last_;
  std::deque<std::pair<std::uint64_t, std::uint64_t>> order_;  // digest and when, oldest first
};

class TensorIds {
 public:
  TensorIds(std::uint64_t capacity, int world_size)
      : capacity_(capacity), read_(static_cast<std::size_t>(world_size)) {}

  struct Meaning {
    const ResponseCache::Record* record =
        nullptr;           // null: it stands for nothing; valid until the next call that changes this
    bool evicted = false;  // the member that says it has not read the eviction
  };
  [[nodiscard]] Meaning find(TensorId id) const;
  void has_read(int rank, std::uint64_t index);  // log entries

  struct Place {  // in the log, where the next entry goes
    std::uint64_t index = 0;
    const std::map<int, std::vector<int>>& sets;  // members
    const Readiness& pending;                     // what is in here is not evicted
  };
  void used(TensorId id);  // runs now
  // The id that `record`, which runs now in full, gets; kNoId: none. What it displaces is to be evicted at `place`.
  TensorId give(ResponseCache::Record record, const Place& place);
  [[nodiscard]] std::vector<TensorId> take_displaced() { return std::exchange(displaced_, {}); }
  void erase_set(int set);

 private:
  struct Evicted {            // an id that some member may still say
    std::uint64_t index = 0;  // of the eviction in the log
    ResponseCache::Record record;
  };
  bool make_room(const ResponseCache::Record& record, std::uint64_t ran_before, const Place& place);
  void forget_evicted(const Place& place);
  [[nodiscard]] TensorId free_id();

  const std::uint64_t capacity_;
  TensorId next_ = 1;
  std::uint64_t now_ = 0;  // tensors that have run
  ResponseCache cache_;
  RecentRuns recent_;
  // Bounded by the capacity per set: a member that reads nothing completes nothing, so nothing new is defined.
  std::vector<Evicted> evicted_;
  std::vector<TensorId> displaced_;  // not yet taken
  std::vector<std::uint64_t> read_;  // by rank: entries read
};

}  // namespace distrun::engine
