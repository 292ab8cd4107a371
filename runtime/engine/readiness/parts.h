// Operations that give each member its own part: how the rows of dimension 0 are divided. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/readiness/mismatch.h"

namespace distrun::engine {

// The rows of a reducescatter that member `index` receives: an equal share. The first rows % members members get one
// more.
std::int64_t share_of(std::int64_t rows, std::size_t members, std::size_t index);

// One member's side of an alltoall: the rows that it sends to each member. Empty splits: equal shares of all its rows.
struct SplitsOf {
  int rank = -1;  // world rank
  std::int64_t rows = 0;
  std::span<const std::int64_t> splits;
};
// True if the shares are equal, whether splits are given or not. The splits must be valid.
bool shares_equally(std::int64_t rows, std::span<const std::int64_t> splits);
// Finds an error in the splits: a wrong number of them, a negative one, more rows than the tensor has, or rows that
// cannot be shared equally. Also unequal splits of more than kMaxSplitMembers members, and more than
// kMaxAlltoallMembers. Rows beyond the sum of the splits are not sent. The error is kInvalidArgument, because splits
// may differ between ranks and are no mismatch.
std::optional<ErrorInfo> check_splits(std::span<const SplitsOf> members, const MismatchContext& context);

// The rows that each member sends to each other, at i * members + j. `logged` is the log's form: dimension 0 of each
// member if all shares are equal, otherwise the rows themselves. Empty: it is neither.
std::vector<std::int64_t> rows_of(std::span<const std::int64_t> logged, std::size_t members);

// The rows of several tensors like `one` together. Empty: they are more than memory can hold.
std::optional<std::int64_t> sum_of_rows(std::span<const std::int64_t> rows, const Signature& one);

}  // namespace distrun::engine
