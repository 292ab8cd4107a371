// Which members share a host, and which members carry which part between the hosts. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/base/types.h"

namespace distrun::backend::hierarchical {

// Members are positions in the group. Every host has at least `lanes` members. The l-th member of each host is in lane
// l if l < lanes, and carries part l of every piece between the hosts. The other members only share memory.
struct Layout {
  std::vector<std::vector<std::size_t>> hosts;  // in the order of their first member; each list is ascending
  std::size_t lanes = 0;                        // number of members on the host with the fewest
  std::size_t host = 0;                         // the host of this member
  std::size_t local = 0;                        // the position of this member on its host
  [[nodiscard]] const std::vector<std::size_t>& here() const { return hosts[host]; }
  [[nodiscard]] bool carries() const { return local < lanes; }
  // One member of each host, ascending.
  [[nodiscard]] std::vector<std::size_t> lane(std::size_t number) const;
};

// `first[i]` is the lowest member on the host of member i. `self` is this member.
Layout layout_of(const std::vector<std::size_t>& first, std::size_t self);

// Elements of each local member's part of a piece. A part is whole cache lines, except the last part. A member without
// a lane has 0.
std::vector<std::size_t> parts_of(const Layout& layout, std::size_t elements, std::size_t element_bytes);

// Size of a piece. Small enough that several stages work at the same time, and large enough that a stage's fixed costs
// do not matter. Must be the same on all members.
inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

// The largest size in bytes of a member's part, for pieces of `piece_bytes`.
std::size_t part_bytes(std::size_t piece_bytes, std::size_t lanes);

// Elements of a piece of about `piece_bytes`. Each lane gets whole cache lines.
std::size_t piece_elements(std::size_t piece_bytes, std::size_t element_bytes, std::size_t lanes);

}  // namespace distrun::backend::hierarchical
