#include "runtime/engine/readiness/mismatch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <sstream>
#include <tuple>

namespace distrun::engine {
namespace {

constexpr std::size_t kMaxRanksNamed = 16;
constexpr std::size_t kMaxGroupsNamed = 8;  // groups with different values; the largest is one of them

std::string scale_text(double scale) {
  std::ostringstream out;
  out.precision(17);
  out << scale;
  return out.str();
}

std::string group_text(const GroupTag& group) {
  if (group.size == 0) return "no group";
  return "a group of " + std::to_string(group.size) + " tensors whose first is '" + group.first + "' (digest " +
         std::to_string(group.digest % 1000000) + ")";
}

std::string shape_text(const Signature& s) {
  if (!rows_differ_by_right(s.kind)) return to_string(s.shape);
  Shape shape = s.shape;
  if (shape.empty()) return "0 dimensions";
  std::string text = to_string(shape);  // dimension 0 may differ
  return std::to_string(shape.size()) + " dimensions, shape " + text;
}

// One row for each property that may differ. Differences are reported in this order.
struct Aspect {
  const char* what;
  const char* cure;
  std::string (*value)(const Signature&);
  bool (*less)(const Signature&, const Signature&);  // an order of the values

  [[nodiscard]] bool differs(const Signature& a, const Signature& b) const { return less(a, b) || less(b, a); }
};

// The shape without the dimension that may differ. The signatures to compare have the same operation.
std::span<const std::int64_t> bound_shape(const Signature& s) {
  const std::span<const std::int64_t> shape = s.shape;
  return rows_differ_by_right(s.kind) && !shape.empty() ? shape.subspan(1) : shape;
}

bool shape_less(const Signature& a, const Signature& b) {
  if (a.shape.size() != b.shape.size()) return a.shape.size() < b.shape.size();
  const auto left = bound_shape(a);
  const auto right = bound_shape(b);
  return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end());
}

bool bits_less(double a, double b) { return std::bit_cast<std::uint64_t>(a) < std::bit_cast<std::uint64_t>(b); }

bool group_less(const Signature& a, const Signature& b) {
  return std::tie(a.group.digest, a.group.size, a.group.first) < std::tie(b.group.digest, b.group.size, b.group.first);
}

const std::array<Aspect, 9> kAspects = {{
    {"operations", "call the same operation", [](const Signature& s) { return std::string(name_of(s.kind)); },
     [](const Signature& a, const Signature& b) { return a.kind < b.kind; }},
    {"data types", "pass the same dtype", [](const Signature& s) { return std::string(name_of(s.dtype)); },
     [](const Signature& a, const Signature& b) { return a.dtype < b.dtype; }},
    {"devices", "put the tensor on the same kind of device",
     [](const Signature& s) { return std::string(name_of(s.device)); },
     [](const Signature& a, const Signature& b) { return a.device < b.device; }},
    {"shapes", "pass the same shape (an allgather or alltoall may differ in its first dimension only)", shape_text,
     shape_less},
    {"reduce operations", "pass the same reduce operation",
     [](const Signature& s) { return std::string(name_of(s.reduce)); },
     [](const Signature& a, const Signature& b) { return a.reduce < b.reduce; }},
    {"prescale factors", "pass the same prescale factor", [](const Signature& s) { return scale_text(s.prescale); },
     [](const Signature& a, const Signature& b) { return bits_less(a.prescale, b.prescale); }},
    {"postscale factors", "pass the same postscale factor", [](const Signature& s) { return scale_text(s.postscale); },
     [](const Signature& a, const Signature& b) { return bits_less(a.postscale, b.postscale); }},
    {"root ranks", "name the same root", [](const Signature& s) { return std::to_string(s.root); },
     [](const Signature& a, const Signature& b) { return a.root < b.root; }},
    {"groups", "group the same tensors", [](const Signature& s) { return group_text(s.group); }, group_less},
}};

struct AgreeingRanks {
  const Signature* signature = nullptr;
  std::vector<int> ranks;
};

std::vector<AgreeingRanks> groups_of(std::span<const RankSignature> submitted, const Aspect& aspect) {
  const auto less = [&](const Signature* a, const Signature* b) { return aspect.less(*a, *b); };
  std::map<const Signature*, std::size_t, decltype(less)> places(less);
  std::vector<AgreeingRanks> groups;
  for (const RankSignature& one : submitted) {
    const auto [place, fresh] = places.try_emplace(one.signature, groups.size());
    if (fresh) groups.push_back({.signature = one.signature});
    groups[place->second].ranks.push_back(one.rank);
  }
  // The largest group comes first, so the odd ones follow it. Equally large ones stay in order of rank.
  std::stable_sort(groups.begin(), groups.end(),
                   [](const AgreeingRanks& a, const AgreeingRanks& b) { return a.ranks.size() > b.ranks.size(); });
  return groups;
}

std::string verb(const std::vector<int>& ranks) { return ranks.size() == 1 ? " has " : " have "; }

ErrorInfo mismatch_error(const std::vector<AgreeingRanks>& groups, const Aspect& aspect,
                         const MismatchContext& context) {
  ErrorInfo error{.code = Errc::kMismatch, .tensor = std::string(context.tensor)};
  const bool tie = groups[0].ranks.size() == groups[1].ranks.size();
  std::string text = "tensor '" + error.tensor + "': " + aspect.what + " differ between ranks: ";
  std::size_t unnamed = 0;  // number of ranks
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const AgreeingRanks& agreeing = groups[(i + 1) % groups.size()];  // the odd ones first, the majority last
    const bool last = i + 1 == groups.size();
    if (tie || !last) error.ranks.insert(error.ranks.end(), agreeing.ranks.begin(), agreeing.ranks.end());
    if (!last && i + 1 >= kMaxGroupsNamed) {
      unnamed += agreeing.ranks.size();
      continue;
    }
    if (last && unnamed > 0) text += "; and " + std::to_string(unnamed) + " more have other values";
    if (i > 0) text += "; ";
    text += describe_ranks(agreeing.ranks, *context.hosts) + verb(agreeing.ranks) + aspect.value(*agreeing.signature);
  }
  std::sort(error.ranks.begin(), error.ranks.end());
  error.message = text + "; " + aspect.cure + " on every rank";
  const auto host = [&](int rank) { return context.hosts->at(static_cast<std::size_t>(rank)); };
  const bool one_host = std::all_of(error.ranks.begin(), error.ranks.end(),
                                    [&](int rank) { return host(rank) == host(error.ranks.front()); });
  if (one_host) error.host = host(error.ranks.front());
  return error;
}

}  // namespace

bool compatible(const Signature& a, const Signature& b) {
  if (!rows_differ_by_right(a.kind) || a.kind != b.kind) return a == b;
  return std::none_of(kAspects.begin(), kAspects.end(), [&](const Aspect& aspect) { return aspect.differs(a, b); });
}

std::optional<ErrorInfo> check_agreed(const Signature& signature, const MismatchContext& context) {
  ErrorInfo error{.code = Errc::kInvalidArgument, .tensor = std::string(context.tensor), .ranks = *context.members};
  const OpTraits& traits = traits_of(signature.kind);
  const bool by_rows = traits.output == OpOutput::kGathered || traits.output == OpOutput::kShare;
  if (by_rows && signature.shape.empty()) {
    error.message = "tensor '" + error.tensor + "': " + std::string(name_of(signature.kind)) +
                    " of a tensor with 0 dimensions is not possible. Give it a first dimension: reshape(1)";
    return error;
  }
  const auto& members = *context.members;
  if (traits.has_root && std::find(members.begin(), members.end(), signature.root) == members.end()) {
    error.message = "tensor '" + error.tensor + "': " + std::string(traits.name) + " root rank " +
                    std::to_string(signature.root) + " is not in the process set (" +
                    describe_ranks(members, *context.hosts) + "). Name a rank of the set";
    return error;
  }
  return std::nullopt;
}

std::optional<ErrorInfo> find_mismatch(std::span<const RankSignature> submitted, const MismatchContext& context) {
  for (const Aspect& aspect : kAspects) {
    const std::vector<AgreeingRanks> groups = groups_of(submitted, aspect);
    if (groups.size() > 1) return mismatch_error(groups, aspect, context);
  }
  return std::nullopt;
}

std::string describe_ranks(std::span<const int> ranks, const std::vector<std::string>& hosts) {
  std::map<std::string, std::vector<int>> by_host;
  const std::size_t shown = std::min(ranks.size(), kMaxRanksNamed);
  std::vector<std::string> order;
  for (const int rank : ranks.first(shown)) {
    const auto position = static_cast<std::size_t>(rank);
    const std::string host = position < hosts.size() ? hosts[position] : "unknown host";
    if (by_host.find(host) == by_host.end()) order.push_back(host);
    by_host[host].push_back(rank);
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t h = 0; h < order.size(); ++h) {
    if (h > 0) text += ", ";
    const auto& list = by_host[order[h]];
    for (std::size_t i = 0; i < list.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(list[i]);
    text += " (" + order[h] + ")";
  }
  if (shown < ranks.size()) text += " and " + std::to_string(ranks.size() - shown) + " more";
  return text;
}

}  // namespace distrun::engine
