// Finds tensors of one call that would overwrite each other. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

namespace distrun::engine {

// The memory of one tensor. A size of 0 means none. Input and output are either the same or do not overlap.
struct MemoryUse {
  const std::byte* input = nullptr;
  std::size_t input_bytes = 0;
  const std::byte* output = nullptr;
  std::size_t output_bytes = 0;
  // Tied weights are one tensor with two names. Broadcasts from one root write the same bytes to it, in any order.
  std::optional<int> root;  // of a broadcast
};

// The positions of two tensors, if one writes memory that the other one reads or writes.
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(std::span<const MemoryUse> uses);

}  // namespace distrun::engine
