// Known tensors: what an id stands for. The leader's copy also keeps the order of use, from which tensor_ids.h decides
// what to evict; members only follow the log, so all copies agree at equal log positions.
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
    Signature signature;                   // at the leader the first submitter's, at a member its own
    std::vector<std::int64_t> first_dims;  // as in TensorRef
    std::uint64_t used = 0;                // at the leader: when it ran last, in tensors that have run
  };
  // In the leader's capacity: one, but more where a record has many rows, so that all of them together stay small.
  [[nodiscard]] static std::uint64_t weight_of(const Record& record);

  [[nodiscard]] const Record* find(TensorId id) const;
  [[nodiscard]] const Record* find(int set, std::string_view name) const;
  [[nodiscard]] std::size_t size() const { return by_id_.size(); }
  [[nodiscard]] std::uint64_t weight() const { return weight_; }

  // An id that stands for nothing here, from `next` on, which moves behind it: a job of days comes round.
  [[nodiscard]] TensorId free_id(TensorId& next) const;
  // Replaces a record of the same set and name.
  void define(Record record);
  void erase(TensorId id);
  void erase_set(int set);
  void touch(TensorId id, std::uint64_t now);  // used just now

  // The ids of records that weigh at least `weight` together: least recently used first, none used since `since`, none
  // that is `busy`. Empty: there are too few.
  [[nodiscard]] std::vector<TensorId> unused_since(std::uint64_t since, std::uint64_t weight,
                                                   const std::function<bool(const Record&)>& busy) const;

 private:
  using Order = std::list<Record>;  // most recently used first; owns the records
  Order order_;
  std::uint64_t weight_ = 0;  // of all records
  std::unordered_map<TensorId, Order::iterator> by_id_;
  std::unordered_map<TensorKey, Order::iterator, TensorKeyHash> by_name_;  // keys view the records' names
};

}  // namespace distrun::engine
