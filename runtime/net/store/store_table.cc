#include "runtime/net/store/store_table.h"

#include <limits>

namespace distrun::net {
namespace {

using Kind = StoreReply::Kind;

constexpr std::size_t kEntryCost = 128;  // what the table itself needs for an entry, roughly

StoreReply refusal(std::uint64_t id, std::string why) {
  return {.kind = Kind::kRefused, .id = id, .text = std::move(why)};
}

std::string full(const std::string& key, std::size_t limit) {
  return "the store is full (" + std::to_string(limit) + " bytes), so '" + key + "' is not kept";
}

}  // namespace

void StoreTable::handle(int rank, const StoreRequest& request, const Send& send) {
  switch (request.kind) {
    case StoreRequest::Kind::kSet:
      return set(rank, request, send);
    case StoreRequest::Kind::kGet:
      return get(rank, request, send);
    case StoreRequest::Kind::kAdd:
      return send(rank, add(request));
    case StoreRequest::Kind::kCancel:
      return cancel({rank, request.id});
    case StoreRequest::Kind::kErase:
      return erase(request.key, request.delta);
    case StoreRequest::Kind::kLeave:
    case StoreRequest::Kind::kFailure:
    case StoreRequest::Kind::kStop:
    case StoreRequest::Kind::kEarlyLeave:
    case StoreRequest::Kind::kStall:
    case StoreRequest::Kind::kLoss:
    case StoreRequest::Kind::kWait:
      break;
  }
}

void StoreTable::set(int rank, const StoreRequest& request, const Send& send) {
  const auto found = values_.find(request.key);
  const std::size_t old = found == values_.end() ? 0 : found->second.size();
  const std::size_t entry = found == values_.end() ? request.key.size() + kEntryCost : 0;
  bytes_ -= old;
  if (!fits(entry + request.value.size())) {
    bytes_ += old;
    return send(rank, refusal(request.id, full(request.key, max_bytes_)));
  }
  bytes_ += entry + request.value.size();
  values_[request.key] = request.value;
  send(rank, {.kind = Kind::kDone, .id = request.id});
  const auto waits = waiting_.extract(request.key);
  if (waits.empty()) return;
  StoreReply value{.kind = Kind::kValue, .text = request.value};
  for (const Wait& wait : waits.mapped()) {
    keys_.erase(wait);
    value.id = wait.second;
    send(wait.first, value);
  }
}

void StoreTable::get(int rank, const StoreRequest& request, const Send& send) {
  if (const auto found = values_.find(request.key); found != values_.end()) {
    return send(rank, {.kind = Kind::kValue, .id = request.id, .text = found->second});
  }
  const Wait first{rank, 0};
  const Wait last{rank, std::numeric_limits<std::uint64_t>::max()};
  const auto waits = std::distance(keys_.lower_bound(first), keys_.upper_bound(last));
  if (static_cast<std::size_t>(waits) >= max_waits_ || keys_.contains({rank, request.id})) {
    return send(rank, refusal(request.id, "rank " + std::to_string(rank) + " waits for too many keys at once"));
  }
  waiting_[request.key].insert({rank, request.id});
  keys_[{rank, request.id}] = request.key;
}

StoreReply StoreTable::add(const StoreRequest& request) {
  auto found = counters_.find(request.key);
  if (found == counters_.end()) {
    const std::size_t entry = request.key.size() + kEntryCost;
    if (!fits(entry)) return refusal(request.id, full(request.key, max_bytes_));
    bytes_ += entry;
    found = counters_.emplace(request.key, 0).first;
  }
  if (__builtin_add_overflow(found->second, request.delta, &found->second)) {
    // The builtin has stored the wrapped sum; the opposite step wraps back.
    (void)__builtin_sub_overflow(found->second, request.delta, &found->second);
    return refusal(request.id, "the counter '" + request.key + "' would overflow");
  }
  return {.kind = Kind::kSum, .id = request.id, .sum = found->second};
}

void StoreTable::cancel(const Wait& wait) {
  const auto key = keys_.find(wait);
  if (key == keys_.end()) return;  // answered already
  const auto waits = waiting_.find(key->second);
  waits->second.erase(wait);
  if (waits->second.empty()) waiting_.erase(waits);
  keys_.erase(key);
}

void StoreTable::erase(const std::string& prefix, std::int64_t members) {
  if (prefix.empty()) return;
  // Refused where the store is full: the keys stay then until the job ends.
  if (members > 1 && add({.key = prefix + "/erased", .delta = 1}).sum < members) return;
  for (auto it = values_.lower_bound(prefix); it != values_.end() && it->first.starts_with(prefix);) {
    bytes_ -= it->first.size() + kEntryCost + it->second.size();
    it = values_.erase(it);
  }
  for (auto it = counters_.lower_bound(prefix); it != counters_.end() && it->first.starts_with(prefix);) {
    bytes_ -= it->first.size() + kEntryCost;
    it = counters_.erase(it);
  }
}

void StoreTable::forget(int rank) {
  for (auto it = keys_.lower_bound({rank, 0}); it != keys_.end() && it->first.first == rank;
       it = keys_.lower_bound({rank, 0})) {
    cancel(Wait(it->first));
  }
}

}  // namespace distrun::net
