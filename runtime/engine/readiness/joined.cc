#include "runtime/engine/readiness/joined.h"

#include <algorithm>

#include "runtime/engine/readiness/mismatch.h"

namespace distrun::engine {
namespace {

// Empty if the operation can run; otherwise the reason why it cannot.
std::string obstacle(const Signature& signature, std::span<const int> joined) {
  const OpTraits& traits = traits_of(signature.kind);
  if (!traits.lost_by_join.empty()) return std::string(traits.lost_by_join);
  if (traits.has_root && std::ranges::find(joined, signature.root) != joined.end()) return "one of them is the root";
  const bool sums = signature.reduce == ReduceOp::kSum || signature.reduce == ReduceOp::kAverage;
  if (traits.reduces && !sums && signature.prescale != 1.0) {
    return "it has a prescale factor, and it is not a sum or an average";
  }
  return {};
}

bool contains(std::span<const int> ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

bool Joined::waits_for(int rank, std::span<const int> others, const std::map<int, std::vector<int>>& members) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& joined) {
    return contains(joined.second, rank) && std::any_of(others.begin(), others.end(), [&](int other) {
             return contains(members.at(joined.first), other) && !contains(joined.second, other);
           });
  });
}

Status check_joined(const PendingTensor& tensor, const std::vector<std::string>& hosts) {
  if (tensor.joined_ranks.empty()) return {};
  const std::string why = obstacle(tensor.signature, tensor.joined_ranks);
  if (why.empty()) return {};
  const std::string kind(name_of(tensor.signature.kind));
  return Status(ErrorInfo{.code = Errc::kInvalidArgument,
                          .message = "tensor '" + tensor.name + "': " + kind + " cannot run after " +
                                     describe_ranks(tensor.joined_ranks, hosts) + " called join(): " + why +
                                     ". Do this operation on every rank before any of them calls join()",
                          .tensor = tensor.name,
                          .ranks = tensor.joined_ranks});
}

}  // namespace distrun::engine
