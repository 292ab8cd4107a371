// The ranks that run an operation together, and their backends. Only the token holder may use this.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/base/types.h"

namespace distrun::engine {

struct ProcessSet {
  int id = 0;
  std::vector<int> members;                                 // world ranks, ascending
  int index = -1;                                           // position of this rank in `members`; -1: not a member
  std::vector<std::unique_ptr<backend::Backend>> backends;  // by DeviceType; null: no such device
  int in_flight = 0;                                        // number of operations, counted by the executor

  [[nodiscard]] bool is_member() const { return index >= 0; }
  [[nodiscard]] backend::Backend* backend_for(DeviceType device) const;
  [[nodiscard]] int index_of(int world_rank) const;  // -1: not a member
};

// A backend's connection to this rank has ended.
struct LostPeer {
  int rank = -1;
  std::string_view backend;
  LinkEnd end = LinkEnd::kUnknown;
  std::string how{};
  bool in_use = false;  // the set has operations in flight
};

class ProcessSets {
 public:
  explicit ProcessSets(int rank) : rank_(rank) {}

  ProcessSet& add(int id, std::vector<int> members);
  [[nodiscard]] ProcessSet* find(int id);
  [[nodiscard]] const ProcessSet* find(int id) const;
  void remove(int id) { sets_.erase(id); }  // destroys the set's backends; nothing may be in flight on them
  [[nodiscard]] std::map<int, ProcessSet>& all() { return sets_; }
  [[nodiscard]] const std::map<int, ProcessSet>& all() const { return sets_; }

 private:
  const int rank_;
  std::map<int, ProcessSet> sets_;
};

}  // namespace distrun::engine
