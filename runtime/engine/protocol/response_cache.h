// Known tensors: which tensor each id identifies. The leader's copy also keeps the order of use, which tensor_ids.h
// needs to decide what to evict. Members only follow the log, so all copies are equal at equal log positions.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/engine/protocol/decision_log.h"
#include "runtime/engine/protocol/signature.h"
#include "runtime/engine/protocol/tensor_key.h"

namespace distrun::engine {

class ResponseCache {
 public:
  struct Record {
    TensorId id = kNoId;
    int set = 0;
    std::string name;
    Signature signature;                   // leader: the first submitter's; member: its own
    std::vector<std::int64_t> first_dims;  // as in TensorRef
    std::uint64_t used = 0;                // leader only: when it last ran, counted in tensors that have run
  };
  // A record's share of the leader's capacity. It is 1, or more for a record with many rows, so that all records
  // together stay small.
  [[nodiscard]] static std::uint64_t weight_of(const Record& record);

  [[nodiscard]] const Record* find(TensorId id) const;
  [[nodiscard]] const Record* find(int set, std::string_view name) const;
  [[nodiscard]] std::size_t size() const { return by_id_.size(); }
  [[nodiscard]] std::uint64_t weight() const { return weight_; }

  // Returns the first unused id from `next` on, and moves `next` past it. Ids wrap around in a job that runs for days.
  [[nodiscard]] TensorId free_id(TensorId& next) const;
  // Replaces a record of the same set and name.
  void define(Record record);
  void erase(TensorId id);
  void erase_set(int set);
  void touch(TensorId id, std::uint64_t now);  // the tensor is used now

  // The ids of records that together weigh at least `weight`, least recently used first. Skips records that are `busy`,
  // and takes none that was used at or after `since`. Empty: there are too few.
  [[nodiscard]] std::vector<TensorId> unused_since(std::uint64_t since, std::uint64_t weight,
                                                   const std::function<bool(const Record&)>& busy) const;

 private:
  using Order = std::list<Record>;  // most recently used first; owns the records
  Order order_;
  std::uint64_t weight_ = 0;  // of all records
  std::unordered_map<TensorId, Order::iterator> by_id_;
  std::unordered_map<TensorKey, Order::iterator, TensorKeyHash> by_name_;  // keys refer to the records' names
};

}  // namespace distrun::engine
