// Do the members of a process set mean the same operation? Pure; the error is what every rank gets.
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

// True when the two can run together: equal, but for the rows of an allgather or alltoall.
bool compatible(const Signature& a, const Signature& b);

// What is wrong with an operation that all ranks describe alike: a 0-d allgather, a root outside the set. It is an
// invalid argument.
std::optional<ErrorInfo> check_agreed(const Signature& signature, const MismatchContext& context);

// The first difference between `submitted` (every member's, in order of rank): names the tensor, the odd ranks (those
// that are not in the largest party; all of them when parties are equally large) and the values.
std::optional<ErrorInfo> find_mismatch(std::span<const RankSignature> submitted, const MismatchContext& context);

// "rank 2 (node1)", "ranks 1, 3 (node1), 4 (node2)"; long lists are cut: "ranks 0, 1, 2 (node1) and 80 more".
std::string describe_ranks(std::span<const int> ranks, const std::vector<std::string>& hosts);

}  // namespace distrun::engine
