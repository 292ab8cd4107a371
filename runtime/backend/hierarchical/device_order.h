// In which order the pieces of one tensor are given to a device that reduces and gathers. Its work occupies it until
// all members have come to it, so two members that give it in different orders would wait for each other for ever; and
// between the two a piece is with the other hosts, for a time that each member sees differently. So the order is fixed:
// reduce-scatters 0 to kLead - 1, then all-gather i and reduce-scatter i + kLead in turn. Pure.
#pragma once

#include <algorithm>
#include <cstddef>

namespace distrun::backend::hierarchical {

// Pieces on their way between the hosts while the device waits for none of them.
inline constexpr std::size_t kLead = 4;

// Whether reduce-scatter `piece` may be given when the first `gathered` all-gathers have been.
constexpr bool may_scatter(std::size_t piece, std::size_t gathered) { return piece < gathered + kLead; }

// Whether all-gather `piece` of `pieces` may be given when the first `scattered` reduce-scatters have been.
constexpr bool may_gather(std::size_t piece, std::size_t pieces, std::size_t scattered) {
  return scattered >= std::min(piece + kLead, pieces);
}

}  // namespace distrun::backend::hierarchical
