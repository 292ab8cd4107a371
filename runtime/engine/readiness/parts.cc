#include "runtime/engine/readiness/parts.h"

#include <algorithm>

#include "runtime/engine/protocol/decision_log.h"

namespace distrun::engine {
namespace {

std::string splits_text(std::span<const std::int64_t> splits) {
  constexpr std::size_t kShown = 16;
  std::string text = "[";
  for (std::size_t i = 0; i < std::min(splits.size(), kShown); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(splits[i]);
  }
  return text + (splits.size() > kShown ? ", ...]" : "]");
}

// Empty when nothing is wrong.
std::string fault_of(const SplitsOf& one, std::size_t members) {
  const auto count = static_cast<std::int64_t>(members);
  if (one.splits.empty()) {
    if (one.rows % count == 0) return {};
    return std::to_string(one.rows) + " rows, which cannot be divided equally among " + std::to_string(members) +
           " ranks: pass splits";
  }
  const std::string given = "the splits " + splits_text(one.splits) + ", ";
  if (one.splits.size() != members) {
    return "the " + std::to_string(one.splits.size()) + " splits " + splits_text(one.splits) +
           ": pass one for each of the " + std::to_string(members) + " ranks of the process set";
  }
  std::int64_t left = one.rows;
  for (const std::int64_t split : one.splits) {
    if (split < 0) return given + "one of them negative: pass numbers of rows";
    if (split > left) {
      return given + "more than the tensor's " + std::to_string(one.rows) +
             " rows: make their sum equal to dimension 0";
    }
    left -= split;
  }
  return {};
}

std::optional<ErrorInfo> check_number(std::span<const SplitsOf> members, const MismatchContext& context) {
  const std::size_t count = context.members->size();
  const auto equal = [](const SplitsOf& one) { return shares_equally(one.rows, one.splits); };
  const bool all_equal = std::all_of(members.begin(), members.end(), equal);
  if (count <= (all_equal ? kMaxAlltoallMembers : kMaxSplitMembers)) return std::nullopt;
  const std::string most = std::to_string(all_equal ? kMaxAlltoallMembers : kMaxSplitMembers);
  return ErrorInfo{.code = Errc::kInvalidArgument,
                   .message = "tensor '" + std::string(context.tensor) + "': an alltoall " +
                              (all_equal ? "" : "with unequal splits ") + "is possible among at most " + most +
                              " ranks, not " + std::to_string(count) + ": " +
                              (all_equal ? "" : "send equal shares or ") + "use process sets of at most " + most +
                              " ranks",
                   .tensor = std::string(context.tensor)};
}

}  // namespace

std::int64_t share_of(std::int64_t rows, std::size_t members, std::size_t index) {
  const auto count = static_cast<std::int64_t>(members);
  return rows / count + (static_cast<std::int64_t>(index) < rows % count ? 1 : 0);
}

bool shares_equally(std::int64_t rows, std::span<const std::int64_t> splits) {
  const auto count = static_cast<std::int64_t>(splits.size());
  return std::all_of(splits.begin(), splits.end(), [&](std::int64_t split) { return split * count == rows; });
}

std::optional<ErrorInfo> check_splits(std::span<const SplitsOf> members, const MismatchContext& context) {
  ErrorInfo error{.code = Errc::kInvalidArgument, .tensor = std::string(context.tensor)};
  std::string first;
  for (const SplitsOf& one : members) {
    const std::string fault = fault_of(one, context.members->size());
    if (fault.empty()) continue;
    if (first.empty()) first = fault;
    error.ranks.push_back(one.rank);
  }
  if (error.ranks.empty()) return check_number(members, context);
  error.host = context.hosts->at(static_cast<std::size_t>(error.ranks.front()));
  error.message = "tensor '" + error.tensor + "': " + describe_ranks(std::span(error.ranks).first(1), *context.hosts) +
                  " called alltoall with " + first;
  if (error.ranks.size() > 1) {
    error.message +=
        " (the splits of " + describe_ranks(std::span(error.ranks).subspan(1), *context.hosts) + " are wrong too)";
  }
  return error;
}

std::vector<std::int64_t> rows_of(std::span<const std::int64_t> logged, std::size_t members) {
  if (logged.size() == members * members) return {logged.begin(), logged.end()};
  std::vector<std::int64_t> rows;
  if (logged.size() != members) return rows;
  rows.reserve(members * members);
  for (const std::int64_t own : logged) rows.insert(rows.end(), members, own / static_cast<std::int64_t>(members));
  return rows;
}

std::optional<std::int64_t> sum_of_rows(std::span<const std::int64_t> rows, const Signature& one) {
  Shape shape = one.shape;
  shape.front() = 0;
  for (const std::int64_t more : rows) {
    if (__builtin_add_overflow(shape.front(), more, &shape.front())) return std::nullopt;
  }
  return fits_in_memory(shape, one.dtype) ? std::optional(shape.front()) : std::nullopt;
}

}  // namespace distrun::engine
