// The decision log: the leader's decisions, in the same order for every member. Entries are numbered from 0. `epoch` is
// reserved for the cuts of the planned regime, an order that is fixed beforehand (docs/reference/limits.md). That is
// not built yet, so it is always 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/protocol/signature.h"

namespace distrun::engine {

using TensorId = std::uint32_t;  // identifies one tensor at a time; wraps around after 2^32
inline constexpr TensorId kNoId = 0;

// The most members of an alltoall whose log entry has the rows of each pair of members. With more members the entry
// would not fit into a frame.
inline constexpr std::size_t kMaxSplitMembers = 1024;
// The most members of any alltoall. Every member computes the counts of all pairs for its backend; for this many they
// take 128 MiB.
inline constexpr std::size_t kMaxAlltoallMembers = 4096;

// How an entry names a tensor. If the id was defined earlier, the id alone is enough. Otherwise the entry has the name
// too, and an id other than kNoId then identifies that name from now on.
struct TensorRef {
  TensorId id = kNoId;
  std::string name;  // empty: the id is known
  // Allgather: dimension 0 of each member. Alltoall: the same if all send equal shares; otherwise the rows that member
  // i sends to member j, at i * members + j. Join: the rank that joined last. If the id is known, the values are those
  // of its definition.
  std::vector<std::int64_t> first_dims;
  std::optional<Signature> signature{};  // only if some member has joined, which may never have seen the tensor
  friend bool operator==(const TensorRef&, const TensorRef&) = default;
};

namespace entry {

// These tensors of one process set run now, together.
struct Run {
  int set = 0;
  std::vector<TensorRef> tensors;
};
// This tensor ends with an error on every rank that has submitted it.
struct Fail {
  int set = 0;
  std::string name;
  Status error;
  // The world ranks for which the error is; empty: all members. Another rank may have just submitted a tensor of this
  // name, which the error does not concern.
  std::vector<int> ranks;
};
// These ids are no longer valid. A tensor that was announced by such an id stays announced, and the leader names it in
// full.
struct Evict {
  std::vector<TensorId> ids;
};
// The members make the backends of a new process set and report the result.
struct MakeSet {
  int set = 0;
  std::vector<int> ranks;
  bool members_only = false;  // only the members asked for it, and only they know of it
  bool unordered = false;     // the call that asked for it was unordered
};
// Tensors can no longer be submitted to this set.
struct RemoveSet {
  int set = 0;
};
// The oldest call in flight of these ranks has ended. If `unordered`, it is the call for this set. A failed call has no
// effect anywhere.
struct EndCall {
  Status result;
  int set = -1;              // add: the set's id, usable from now on, or the id of the set that could not be made
  std::vector<int> ranks{};  // ascending; empty: all
  bool unordered = false;
};
// All ranks start to record the timeline. With an empty path they stop.
struct Timeline {
  std::string path;
};
// This rank submits nothing more and may end when the log has ended.
struct Left {
  int rank = -1;
};
// All ranks have left. This is the last entry.
struct Shutdown {};

}  // namespace entry

using Entry = std::variant<entry::Run, entry::Fail, entry::Evict, entry::MakeSet, entry::RemoveSet, entry::EndCall,
                           entry::Timeline, entry::Left, entry::Shutdown>;

}  // namespace distrun::engine
