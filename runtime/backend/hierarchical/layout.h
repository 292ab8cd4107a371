// Who shares a host with whom, and which members carry which part between the hosts. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/base/types.h"

namespace distrun::backend::hierarchical {

// Members are positions in the group. Every host has at least `lanes` of them; the l-th member of each host is in lane
// l, as long as l < lanes, and carries part l of every piece between the hosts. Others share memory only.
struct Layout {
  std::vector<std::vector<std::size_t>> hosts;  // ascending by first member, and each ascending
  std::size_t lanes = 0;                        // of the host with the fewest members
  std::size_t host = 0;                         // this member's
  std::size_t local = 0;                        // its place there
  [[nodiscard]] const std::vector<std::size_t>& here() const { return hosts[host]; }
  [[nodiscard]] bool carries() const { return local < lanes; }
  // One member of each host, ascending.
  [[nodiscard]] std::vector<std::size_t> lane(std::size_t number) const;
};

// `first[i]`: the lowest member on member i's host.
Layout layout_of(const std::vector<std::size_t>& first, std::size_t self);

// Elements of each local member's part of a piece: whole cache lines but for the last, nothing for those without a
// lane.
std::vector<std::size_t> parts_of(const Layout& layout, std::size_t elements, std::size_t element_bytes);

// Small enough that several stages work at the same time, large enough that a stage's fixed costs do not matter. The
// same on all members.
inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

// The most that a member's part of a piece of `piece_bytes` takes.
std::size_t part_bytes(std::size_t piece_bytes, std::size_t lanes);

// Elements of a piece of about `piece_bytes`: whole cache lines of each lane.
std::size_t piece_elements(std::size_t piece_bytes, std::size_t element_bytes, std::size_t lanes);

}  // namespace distrun::backend::hierarchical
