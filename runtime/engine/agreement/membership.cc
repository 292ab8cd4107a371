#include "runtime/engine/agreement/membership.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace distrun::engine {

Membership::Membership(int world_size, std::vector<std::string> hosts, std::atomic<int>* next_set)
    : hosts_(std::move(hosts)),
      next_set_(next_set != nullptr ? *next_set : own_next_set_),
      left_(static_cast<std::size_t>(world_size)) {
  std::vector<int>& world = sets_[0];
  world.resize(left_.size());
  std::iota(world.begin(), world.end(), 0);
}

bool Membership::are_ranks(const std::vector<int>& ranks) const {
  return !ranks.empty() && std::is_sorted(ranks.begin(), ranks.end(), std::less_equal<>()) && ranks.front() >= 0 &&
         ranks.back() < world_size();
}

int Membership::add_set(std::vector<int> ranks, bool members_only) {
  const int set = next_set_.fetch_add(1, std::memory_order_relaxed);
  sets_[set] = std::move(ranks);
  if (members_only) members_only_.insert(set);
  return set;
}

void Membership::remove_set(int set) {
  sets_.erase(set);
  members_only_.erase(set);
}

std::optional<std::size_t> Membership::position(int rank, int set) const {
  const auto found = sets_.find(set);
  if (found == sets_.end()) return std::nullopt;
  const auto& members = found->second;
  const auto where = std::lower_bound(members.begin(), members.end(), rank);
  if (where == members.end() || *where != rank) return std::nullopt;
  return static_cast<std::size_t>(where - members.begin());
}

bool Membership::leave(int rank) {
  if (has_left(rank)) return false;
  left_[static_cast<std::size_t>(rank)] = any_left_ = true;
  return true;
}

bool Membership::drained(int rank) { return has_left(rank) && drained_.insert(rank).second; }

std::vector<int> Membership::left_of(std::vector<int> ranks) const {
  std::erase_if(ranks, [this](int rank) { return !has_left(rank); });
  return ranks;
}

}  // namespace distrun::engine
