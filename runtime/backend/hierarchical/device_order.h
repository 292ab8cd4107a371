// The order of the pieces of one tensor on a device that reduces and gathers. A submitted step occupies the device
// until all members have submitted it. So two members with different orders would deadlock. Between its two steps a
// piece is exchanged with the other hosts, and this takes a different time on each member. Therefore the order is
// fixed: reduce-scatters 0 to kLead - 1, then all-gather i and reduce-scatter i + kLead in turn. Pure.
#pragma once

#include <algorithm>
#include <cstddef>

namespace distrun::backend::hierarchical {

// Number of pieces that may be in transit between the hosts before the device waits for one.
inline constexpr std::size_t kLead = 4;

// Whether reduce-scatter `piece` may be submitted after the first `gathered` all-gathers.
constexpr bool may_scatter(std::size_t piece, std::size_t gathered) { return piece < gathered + kLead; }

// Whether all-gather `piece` of `pieces` may be submitted after the first `scattered` reduce-scatters.
constexpr bool may_gather(std::size_t piece, std::size_t pieces, std::size_t scattered) {
  return scattered >= std::min(piece + kLead, pieces);
}

}  // namespace distrun::backend::hierarchical
