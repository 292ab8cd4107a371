// Checks whether the members of a process set submitted the same operation. Pure. Every rank gets the same error.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/protocol/signature.h"

namespace distrun::engine {

struct RankSignature {
  int rank = -1;  // world rank
  const Signature* signature = nullptr;
};

struct MismatchContext {
  std::string_view tensor;
  const std::vector<int>* members = nullptr;        // of the process set, world ranks
  const std::vector<std::string>* hosts = nullptr;  // by world rank
};

// True if the two can run together: they are equal, except for the rows of an allgather or alltoall.
bool compatible(const Signature& a, const Signature& b);

// Finds an error in an operation that all ranks describe alike, such as a 0-d allgather or a root outside the set.
// Returns kInvalidArgument.
std::optional<ErrorInfo> check_agreed(const Signature& signature, const MismatchContext& context);

// Finds the first difference between the signatures in `submitted` (of every member, in order of rank). The error names
// the tensor, the odd ranks and the values. The odd ranks are those outside the largest group, or all if groups are
// equally large.
std::optional<ErrorInfo> find_mismatch(std::span<const RankSignature> submitted, const MismatchContext& context);

// "rank 2 (node1)", "ranks 1, 3 (node1), 4 (node2)". Long lists are cut: "ranks 0, 1, 2 (node1) and 80 more".
std::string describe_ranks(std::span<const int> ranks, const std::vector<std::string>& hosts);

}  // namespace distrun::engine
