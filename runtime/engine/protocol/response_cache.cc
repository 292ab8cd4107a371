#include "runtime/engine/protocol/response_cache.h"

#include <algorithm>

namespace distrun::engine {

std::uint64_t ResponseCache::weight_of(const Record& record) {
  constexpr std::uint64_t kRowsOfOne = 1024;  // 8 KiB
  return std::max<std::uint64_t>(1, record.first_dims.size() / kRowsOfOne);
}

const ResponseCache::Record* ResponseCache::find(TensorId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &*found->second;
}

const ResponseCache::Record* ResponseCache::find(int set, std::string_view name) const {
  const auto found = by_name_.find(TensorKey{.set = set, .name = name});
  return found == by_name_.end() ? nullptr : &*found->second;
}

TensorId ResponseCache::free_id(TensorId& next) const {
  while (next == kNoId || find(next) != nullptr) ++next;
  return next++;
}

void ResponseCache::define(Record record) {
  if (const Record* old = find(record.set, record.name)) erase(old->id);
  weight_ += weight_of(record);
  order_.push_front(std::move(record));
  const auto where = order_.begin();
  by_id_[where->id] = where;
  by_name_[TensorKey{.set = where->set, .name = where->name}] = where;
}

void ResponseCache::erase(TensorId id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  const Order::iterator where = found->second;
  by_name_.erase(TensorKey{.set = where->set, .name = where->name});
  by_id_.erase(found);
  weight_ -= weight_of(*where);
  order_.erase(where);
}

void ResponseCache::erase_set(int set) {
  for (auto where = order_.begin(); where != order_.end();) {
    const TensorId id = where->id;
    const bool drop = where->set == set;
    ++where;
    if (drop) erase(id);
  }
}

void ResponseCache::touch(TensorId id, std::uint64_t now) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  found->second->used = now;
  order_.splice(order_.begin(), order_, found->second);
}

std::vector<TensorId> ResponseCache::unused_since(std::uint64_t since, std::uint64_t weight,
                                                  const std::function<bool(const Record&)>& busy) const {
  std::vector<TensorId> ids;
  std::uint64_t found = 0;
  for (auto where = order_.rbegin(); where != order_.rend() && found < weight && where->used < since; ++where) {
    if (busy(*where)) continue;
    ids.push_back(where->id);
    found += weight_of(*where);
  }
  if (found < weight) ids.clear();
  return ids;
}

}  // namespace distrun::engine
