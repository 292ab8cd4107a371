#include "runtime/engine/run/overlap.h"

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

namespace distrun::engine {
namespace {

struct Interval {
  const std::byte* begin;
  const std::byte* end;
  std::size_t tensor;
  bool writes;
  bool casts;  // a broadcast from the root of the first one
};

std::vector<Interval> intervals_of(std::span<const MemoryUse> uses) {
  const auto first = std::ranges::find_if(uses, [](const MemoryUse& one) { return one.root.has_value(); });
  std::vector<Interval> all;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const MemoryUse& one = uses[i];
    const bool casts = one.root && one.root == first->root;
    const auto add = [&](const std::byte* begin, std::size_t bytes, bool writes) {
      if (bytes > 0)
        all.push_back({.begin = begin, .end = begin + bytes, .tensor = i, .writes = writes, .casts = casts});
    };
    add(one.output, one.output_bytes, true);
    if (one.input != one.output || one.output_bytes == 0) add(one.input, one.input_bytes, false);
  }
  std::ranges::sort(all, std::less<>(), &Interval::begin);
  return all;
}

}  // namespace

std::optional<std::pair<std::size_t, std::size_t>> find_overlap(std::span<const MemoryUse> uses) {
  const std::vector<Interval> all = intervals_of(uses);
  // Of the intervals so far: the one that ends last, by [writes][casts].
  std::array<std::array<const Interval*, 2>, 2> last{};
  for (const Interval& one : all) {
    for (const bool writes : {true, false}) {
      for (const bool casts : {true, false}) {
        const Interval* other = last[writes ? 1 : 0][casts ? 1 : 0];
        const bool harmless = (!writes && !one.writes) || (casts && one.casts);
        if (other != nullptr && !harmless && other->end > one.begin) {
          return std::minmax(other->tensor, one.tensor);
        }
      }
    }
    const Interval*& same = last[one.writes ? 1 : 0][one.casts ? 1 : 0];
    if (same == nullptr || same->end < one.end) same = &one;
  }
  return std::nullopt;
}

}  // namespace distrun::engine
