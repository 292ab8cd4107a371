// Operations in which every member has a part of its own: how rows of dimension 0 are shared out. Pure.
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

// Rows of a reducescatter that member `index` receives: an equal share, and one more for the first rows % members.
std::int64_t share_of(std::int64_t rows, std::size_t members, std::size_t index);

// One member's side of an alltoall: rows it sends to each member; none given: equal shares of all its rows.
struct SplitsOf {
  int rank = -1;  // world rank
  std::int64_t rows = 0;
  std::span<const std::int64_t> splits;
};
// The same whether they are given or not. Of splits that are not wrong.
bool shares_equally(std::int64_t rows, std::span<const std::int64_t> splits);
// What is wrong with them: a wrong number of splits, a negative one, more rows than there are, rows that cannot be
// shared equally, unequal splits of more than kMaxSplitMembers, more than kMaxAlltoallMembers. Rows beyond the sum of
// the splits are sent to nobody. An invalid argument: splits may differ, so nobody disagrees.
std::optional<ErrorInfo> check_splits(std::span<const SplitsOf> members, const MismatchContext& context);

// Rows that each member sends to each, at i * members + j, from what the log carries: dimension 0 of each member when
// all share equally, else the rows themselves. Empty: neither.
std::vector<std::int64_t> rows_of(std::span<const std::int64_t> logged, std::size_t members);

// Rows of several tensors like `one` together; none if they are more than memory can have.
std::optional<std::int64_t> sum_of_rows(std::span<const std::int64_t> rows, const Signature& one);

}  // namespace distrun::engine
