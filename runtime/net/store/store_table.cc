#include "runtime/net/store/store_table.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace distrun::net {
namespace {

using Kind = StoreReply::Kind;

constexpr std::size_t kEntryCost = 128;  // approximate memory that the table needs for an entry

StoreReply refusal(std::uint64_t id, std::string why) {
  return {.kind = Kind::kRefused, .id = id, .text = std::move(why)};
}

std::string full(const std::string& key, std::size_t limit) {
  return "the store is full (" + std::to_string(limit) + " bytes) and cannot keep '" + key + "'";
}

std::int64_t keys_with(const std::map<std::string, std::string>& values, const std::string& prefix) {
  const auto first = values.lower_bound(prefix);
  const auto last = std::find_if(first, values.end(), [&](const auto& one) { return !one.first.starts_with(prefix); });
  return std::distance(first, last);
}

}  // namespace

void StoreTable::handle(int rank, const StoreRequest& request, const Send& send) {
  switch (request.kind) {
    case StoreRequest::Kind::kSet:
      return set(rank, request, send);
    case StoreRequest::Kind::kGet:
      return get(rank, request, send);
    case StoreRequest::Kind::kAdd:
      return add(rank, request, send);
    case StoreRequest::Kind::kSwap:
      return swap(rank, request, send);
    case StoreRequest::Kind::kCount:
      return send(rank, {.kind = Kind::kSum, .id = request.id, .sum = keys_with(values_, request.key)});
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
    case StoreRequest::Kind::kNoProgress:
    case StoreRequest::Kind::kWaits:
    case StoreRequest::Kind::kState:
      break;
  }
}

bool StoreTable::keep(const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  const std::size_t old = found == values_.end() ? 0 : found->second.size();
  const std::size_t entry = found == values_.end() ? key.size() + kEntryCost : 0;
  bytes_ -= old;
  if (!fits(entry + value.size())) {
    bytes_ += old;
    return false;
  }
  bytes_ += entry + value.size();
  values_[key] = value;
  return true;
}

void StoreTable::set(int rank, const StoreRequest& request, const Send& send) {
  if (!keep(request.key, request.value)) return send(rank, refusal(request.id, full(request.key, max_bytes_)));
  send(rank, {.kind = Kind::kDone, .id = request.id});
  answer_waits(request.key, send);
}

void StoreTable::answer_waits(const std::string& key, const Send& send) {
  const auto waits = waiting_.extract(key);
  if (waits.empty()) return;
  StoreReply value{.kind = Kind::kValue, .text = values_.at(key)};
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

void StoreTable::add(int rank, const StoreRequest& request, const Send& send) {
  std::int64_t sum = 0;
  if (const auto found = values_.find(request.key); found != values_.end()) {
    const std::string& digits = found->second;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), sum);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      return send(rank, refusal(request.id, "'" + request.key + "' is not a counter"));
    }
  }
  if (__builtin_add_overflow(sum, request.delta, &sum)) {
    return send(rank, refusal(request.id, "the counter '" + request.key + "' would overflow"));
  }
  if (!keep(request.key, std::to_string(sum))) {
    return send(rank, refusal(request.id, full(request.key, max_bytes_)));
  }
  send(rank, {.kind = Kind::kSum, .id = request.id, .sum = sum});
  answer_waits(request.key, send);
}

void StoreTable::swap(int rank, const StoreRequest& request, const Send& send) {
  const auto found = values_.find(request.key);
  StoreReply before{.kind = Kind::kAbsent, .id = request.id};
  if (found != values_.end()) {
    before.kind = Kind::kValue;
    before.text = found->second;
  }
  const bool is_expected = found == values_.end() ? !request.expected : request.expected == found->second;
  if (!is_expected) return send(rank, before);
  if (request.wanted) {
    if (!keep(request.key, *request.wanted)) return send(rank, refusal(request.id, full(request.key, max_bytes_)));
  } else if (found != values_.end()) {
    bytes_ -= found->first.size() + kEntryCost + found->second.size();
    values_.erase(found);
  }
  send(rank, before);
  if (request.wanted) answer_waits(request.key, send);
}

void StoreTable::cancel(const Wait& wait) {
  const auto key = keys_.find(wait);
  if (key == keys_.end()) return;  // already answered
  const auto waits = waiting_.find(key->second);
  waits->second.erase(wait);
  if (waits->second.empty()) waiting_.erase(waits);
  keys_.erase(key);
}

void StoreTable::erase(const std::string& prefix, std::int64_t members) {
  if (prefix.empty()) return;
  if (members > 1) {
    // If the store is full, the add is refused, and the keys stay until the job ends.
    std::int64_t asked = 0;
    add(-1, {.key = prefix + "/erased", .delta = 1}, [&asked](int, const StoreReply& reply) { asked = reply.sum; });
    if (asked < members) return;
  }
  for (auto it = values_.lower_bound(prefix); it != values_.end() && it->first.starts_with(prefix);) {
    bytes_ -= it->first.size() + kEntryCost + it->second.size();
    it = values_.erase(it);
  }
}

void StoreTable::forget(int rank) {
  for (auto it = keys_.lower_bound({rank, 0}); it != keys_.end() && it->first.first == rank;
       it = keys_.lower_bound({rank, 0})) {
    cancel(Wait(it->first));
  }
}

}  // namespace distrun::net
