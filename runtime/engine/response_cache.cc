#include "runtime/engine/response_cache.h"

namespace distrun::engine {

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

void ResponseCache::touch(TensorId id) {
  if (const auto found = by_id_.find(id); found != by_id_.end()) order_.splice(order_.begin(), order_, found->second);
}

std::vector<TensorId> ResponseCache::overflow(std::size_t capacity,
                                              const std::function<bool(const Record&)>& busy) const {
  std::vector<TensorId> ids;
  for (auto where = order_.rbegin(); where != order_.rend() && order_.size() - ids.size() > capacity; ++where) {
    if (!busy(*where)) ids.push_back(where->id);
  }
  return ids;
}

}  // namespace distrun::engine
