#include "runtime/engine/run/process_set.h"

#include <algorithm>
#include <utility>

namespace distrun::engine {

backend::Backend* ProcessSet::backend_for(DeviceType device) const {
  const auto position = static_cast<std::size_t>(device);
  return position < backends.size() ? backends[position].get() : nullptr;
}

int ProcessSet::index_of(int world_rank) const {
  const auto where = std::lower_bound(members.begin(), members.end(), world_rank);
  return where == members.end() || *where != world_rank ? -1 : static_cast<int>(where - members.begin());
}

ProcessSet& ProcessSets::add(int id, std::vector<int> members) {
  ProcessSet& set = sets_[id];
  set.id = id;
  set.members = std::move(members);
  set.index = set.index_of(rank_);
  return set;
}

ProcessSet* ProcessSets::find(int id) {
  const auto found = sets_.find(id);
  return found == sets_.end() ? nullptr : &found->second;
}

const ProcessSet* ProcessSets::find(int id) const {
  const auto found = sets_.find(id);
  return found == sets_.end() ? nullptr : &found->second;
}

}  // namespace distrun::engine
