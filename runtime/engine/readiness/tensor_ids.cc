#include "runtime/engine/readiness/tensor_ids.h"

#include <algorithm>

#include "runtime/engine/protocol/tensor_key.h"

namespace distrun::engine {
namespace {

// Each takes about 100 bytes. A name that comes again after more than this number of other names without an id is
// treated as new.
constexpr std::size_t kMostRecent = 1 << 14;

// True if the record has the rows of every pair of members. In many programs they change with each step. They get an id
// only if the same rows have come before, and the name's current id was not used since. All ranks then keep them in
// place of what they know of the name.
bool has_pairs(const ResponseCache::Record& record, const TensorIds::Place& place) {
  return record.first_dims.size() > place.sets.at(record.set).size();
}

std::uint64_t digest_of(const ResponseCache::Record& record, bool with_rows) {
  std::uint64_t digest = TensorKeyHash{}({.set = record.set, .name = record.name});
  if (!with_rows) return digest;
  for (const std::int64_t rows : record.first_dims) {
    digest = (digest ^ static_cast<std::uint64_t>(rows)) * 0x100000001B3ULL;
    digest ^= digest >> 29;
  }
  return digest;
}

}  // namespace

std::uint64_t RecentRuns::last(std::uint64_t digest) const {
  const auto found = last_.find(digest);
  return found == last_.end() ? 0 : found->second;
}

void RecentRuns::note(std::uint64_t digest, std::uint64_t now) {
  last_[digest] = now;
  order_.emplace_back(digest, now);
  if (order_.size() <= kMostRecent) return;
  const auto oldest = last_.find(order_.front().first);
  if (oldest != last_.end() && oldest->second == order_.front().second) last_.erase(oldest);
  order_.pop_front();
}

TensorIds::Meaning TensorIds::find(TensorId id) const {
  if (const ResponseCache::Record* record = cache_.find(id)) return {.record = record};
  const auto found =
      std::find_if(evicted_.begin(), evicted_.end(), [id](const Evicted& e) { return e.record.id == id; });
  if (found == evicted_.end()) return {};
  return {.record = &found->record, .evicted = true};
}

void TensorIds::has_read(int rank, std::uint64_t index) {
  read_[static_cast<std::size_t>(rank)] = std::max(read_[static_cast<std::size_t>(rank)], index);
}

void TensorIds::used(TensorId id) { cache_.touch(id, ++now_); }

TensorId TensorIds::give(ResponseCache::Record record, const Place& place) {
  ++now_;
  if (ResponseCache::weight_of(record) > capacity_) return kNoId;
  const bool pairs = has_pairs(record, place);
  const std::uint64_t digest = digest_of(record, pairs);
  const std::uint64_t ran = recent_.last(digest);
  const ResponseCache::Record* old = cache_.find(record.set, record.name);
  const std::uint64_t old_used = old == nullptr ? 0 : old->used;
  if ((pairs && ran <= old_used) || !make_room(record, std::max(ran, old_used), place)) {
    recent_.note(digest, now_);
    return kNoId;
  }
  record.id = free_id();
  record.used = now_;
  const TensorId id = record.id;
  cache_.define(std::move(record));
  return id;
}

bool TensorIds::make_room(const ResponseCache::Record& record, std::uint64_t ran_before, const Place& place) {
  const ResponseCache::Record* old = cache_.find(record.set, record.name);
  const std::uint64_t kept = cache_.weight() - (old == nullptr ? 0 : ResponseCache::weight_of(*old));
  const std::uint64_t needed = kept + ResponseCache::weight_of(record);
  if (needed <= capacity_) return true;
  // The record's own tensor is pending too, but this run consumes it.
  const auto busy = [&](const ResponseCache::Record& one) { return place.pending.contains(one.set, one.name); };
  const std::vector<TensorId> ids = cache_.unused_since(ran_before, needed - capacity_, busy);
  if (ids.empty()) return false;
  forget_evicted(place);
  for (const TensorId id : ids) {
    evicted_.push_back({.index = place.index, .record = *cache_.find(id)});
    cache_.erase(id);
  }
  displaced_.insert(displaced_.end(), ids.begin(), ids.end());
  return true;
}

void TensorIds::forget_evicted(const Place& place) {
  std::erase_if(evicted_, [&](const Evicted& one) {
    const std::vector<int>& members = place.sets.at(one.record.set);
    return std::all_of(members.begin(), members.end(),
                       [&](int rank) { return read_[static_cast<std::size_t>(rank)] > one.index; });
  });
}

TensorId TensorIds::free_id() {
  for (;;) {
    const TensorId id = cache_.free_id(next_);
    if (find(id).record == nullptr) return id;
  }
}

void TensorIds::erase_set(int set) {
  cache_.erase_set(set);
  std::erase_if(evicted_, [set](const Evicted& one) { return one.record.set == set; });
}

}  // namespace distrun::engine
