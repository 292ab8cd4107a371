// The members of each process set, and the ranks that have left the job. The leader's parts share this. Pure: no clock,
// no I/O.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace distrun::engine {

class Membership {
 public:
  // `hosts`: by world rank, for texts. `next_set`: see EngineOptions; may be null.
  Membership(int world_size, std::vector<std::string> hosts, std::atomic<int>* next_set);

  [[nodiscard]] int world_size() const { return static_cast<int>(left_.size()); }
  [[nodiscard]] const std::vector<std::string>& hosts() const { return hosts_; }
  [[nodiscard]] bool are_ranks(const std::vector<int>& ranks) const;  // true: ascending, each rank once

  // --- process sets ---
  int add_set(std::vector<int> ranks, bool members_only);  // returns its number, which is never reused
  void remove_set(int set);
  [[nodiscard]] bool has_set(int set) const { return sets_.contains(set); }
  // True: only the members know of the set.
  [[nodiscard]] bool is_members_only(int set) const { return members_only_.contains(set); }
  // World ranks, ascending. The reference stays valid until the set is removed.
  [[nodiscard]] const std::vector<int>& members(int set) const { return sets_.at(set); }
  [[nodiscard]] const std::map<int, std::vector<int>>& sets() const { return sets_; }
  [[nodiscard]] std::optional<std::size_t> position(int rank, int set) const;

  // --- leaving; false: the rank has already done so, or may not do so yet ---
  [[nodiscard]] bool leave(int rank);
  [[nodiscard]] bool drained(int rank);
  [[nodiscard]] bool has_left(int rank) const { return left_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool any_left() const { return any_left_; }
  [[nodiscard]] bool all_drained() const { return drained_.size() == left_.size(); }
  // Those of `ranks` that have left.
  [[nodiscard]] std::vector<int> left_of(std::vector<int> ranks) const;

 private:
  const std::vector<std::string> hosts_;
  std::map<int, std::vector<int>> sets_;
  std::set<int> members_only_;  // sets
  std::atomic<int> own_next_set_ = 1;
  std::atomic<int>& next_set_;
  std::vector<bool> left_;  // by rank
  bool any_left_ = false;
  std::set<int> drained_;  // ranks that take part in nothing any more
};

}  // namespace distrun::engine
