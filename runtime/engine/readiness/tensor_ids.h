// The leader's ids: which tensors get one, and which tensor a member's id stands for. Pure. Members only follow the
// log.
//
// While there is room, a tensor gets an id when it runs. Without room, it gets one only if it has run before, and later
// than the last use of the records that it displaces. So names that never come again displace no name that does. If a
// cycle has more names than there is room for, as many stay known as fit.
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

// Tensors that ran recently and got no id, by digest. If two tensors share a digest, one of them only gets its id
// earlier or later than it should.
class RecentRuns {
 public:
  // When it last ran. 0: never, or long ago.
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
        nullptr;           // null: the id is unknown; valid until the next call that changes this object
    bool evicted = false;  // the id was evicted, and the member has not read the eviction yet
  };
  [[nodiscard]] Meaning find(TensorId id) const;
  void has_read(int rank, std::uint64_t index);  // number of log entries

  struct Place {  // the position of the next entry in the log
    std::uint64_t index = 0;
    const std::map<int, std::vector<int>>& sets;  // members
    const Readiness& pending;                     // tensors in it are not evicted
  };
  void used(TensorId id);  // the tensor runs now
  // `record` runs now, named in full. Returns its new id, or kNoId if it gets none. Records that it displaces must be
  // evicted at `place`.
  TensorId give(ResponseCache::Record record, const Place& place);
  [[nodiscard]] std::vector<TensorId> take_displaced() { return std::exchange(displaced_, {}); }
  void erase_set(int set);

 private:
  struct Evicted {            // an id that some member may still use
    std::uint64_t index = 0;  // of the eviction in the log
    ResponseCache::Record record;
  };
  bool make_room(const ResponseCache::Record& record, std::uint64_t ran_before, const Place& place);
  void forget_evicted(const Place& place);
  [[nodiscard]] TensorId free_id();

  const std::uint64_t capacity_;
  TensorId next_ = 1;
  std::uint64_t now_ = 0;  // number of tensors that have run
  ResponseCache cache_;
  RecentRuns recent_;
  // At most the capacity for each set: a member that reads nothing completes nothing, so no new ids are defined.
  std::vector<Evicted> evicted_;
  std::vector<TensorId> displaced_;  // not yet taken by take_displaced()
  std::vector<std::uint64_t> read_;  // by rank: number of entries read
};

}  // namespace distrun::engine
