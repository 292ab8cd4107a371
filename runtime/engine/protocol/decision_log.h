// The decision log: what the leader has decided, in an order that is the same for every member. Entries are numbered
// from 0; `epoch` counts the cuts of the planned regime, which is not built yet and is always 0.
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

using TensorId = std::uint32_t;  // stands for one tensor at a time; comes round after 2^32
inline constexpr TensorId kNoId = 0;

// Where the rows of each pair of members are in the log, so that the entry fits into a frame.
inline constexpr std::size_t kMaxSplitMembers = 1024;
// Of any alltoall: every member computes the counts of all pairs for its backend, 128 MiB of them.
inline constexpr std::size_t kMaxAlltoallMembers = 4096;

// A tensor as an entry names it. With an id that was defined earlier, the id alone is enough. Otherwise the name is
// there too, and an id other than kNoId is from now on that name's.
struct TensorRef {
  TensorId id = kNoId;
  std::string name;  // empty: known by id
  // Allgather: dimension 0 of each member. Alltoall: the same where all send equal shares; else, at i * members + j,
  // the rows that member i sends to member j. Join: the rank that joined last. Known by id: as when the id was defined.
  std::vector<std::int64_t> first_dims;
  std::optional<Signature> signature{};  // where some member has joined and may never have seen the tensor
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
  // The world ranks that it is for; empty: all members. Another one may have a tensor of this name on its way to the
  // leader, which is not meant.
  std::vector<int> ranks;
};
// Ids that are known no more; what was announced by one of them is announced again in full.
struct Evict {
  std::vector<TensorId> ids;
};
// The members make the backends of a new process set and report back.
struct MakeSet {
  int set = 0;
  std::vector<int> ranks;
  bool members_only = false;  // nobody else has asked for it, nor knows of it
  bool unordered = false;     // the call for it was
};
// Nothing can be submitted to this set any more.
struct RemoveSet {
  int set = 0;
};
// The oldest call in flight of these ranks has ended, or, if unordered, the one for this set. A failed one has no
// effect anywhere.
struct EndCall {
  Status result;
  int set = -1;              // add: the id of the set, usable from now on; or of the one that could not be made
  std::vector<int> ranks{};  // ascending; empty: all
  bool unordered = false;
};
// All ranks write (or stop writing) the timeline; an empty path stops.
struct Timeline {
  std::string path;
};
// This rank submits nothing more and may go away once the log has ended.
struct Left {
  int rank = -1;
};
// All have left: the last entry.
struct Shutdown {};

}  // namespace entry

using Entry = std::variant<entry::Run, entry::Fail, entry::Evict, entry::MakeSet, entry::RemoveSet, entry::EndCall,
                           entry::Timeline, entry::Left, entry::Shutdown>;

}  // namespace distrun::engine
