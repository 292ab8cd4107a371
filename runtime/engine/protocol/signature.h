// The properties of one tensor on which the ranks must agree. Values only. Two tensors with equal signatures may run
// together.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/types.h"

namespace distrun::engine {

// The tensors of one submit call that run all or none. Each rank numbers its groups in its own way, so a group is
// identified by its content: a digest of the sorted names.
struct GroupTag {
  std::uint64_t digest = 0;
  std::uint32_t size = 0;  // tensors in the group; 0: not grouped
  std::string first;       // the smallest name, for error texts
  friend bool operator==(const GroupTag&, const GroupTag&) = default;
};

// Fields that an operation does not use keep their defaults, so that equality needs no special cases. Exceptions:
// dimension 0 of an allgather or alltoall, and the splits, may differ between ranks.
struct Signature {
  OpKind kind = OpKind::kAllreduce;
  DType dtype = DType::kF32;
  DeviceType device = DeviceType::kCpu;  // the index may differ between ranks
  ReduceOp reduce = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;  // broadcast: world rank
  Shape shape;
  std::vector<std::int64_t> splits;  // alltoall: rows for each member; empty: equal shares
  GroupTag group;

  friend bool operator==(const Signature& a, const Signature& b) {
    return a.kind == b.kind && a.dtype == b.dtype && a.device == b.device && a.reduce == b.reduce &&
           same_bits(a.prescale, b.prescale) && same_bits(a.postscale, b.postscale) && a.root == b.root &&
           a.shape == b.shape && a.splits == b.splits && a.group == b.group;
  }
  // A NaN scale must equal itself. Otherwise a tensor would mismatch itself.
  static bool same_bits(double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  }
};

inline bool moves_data(OpKind kind) { return traits_of(kind).output != OpOutput::kNone; }

// Whether dimension 0 and the splits may differ between ranks.
inline bool rows_differ_by_right(OpKind kind) { return traits_of(kind).output == OpOutput::kGathered; }

inline constexpr std::size_t kMaxDimensions = 64;

// True if no dimension is negative and the bytes fit into an address space.
bool fits_in_memory(const Shape& shape, DType dtype);

inline std::size_t payload_bytes(const Signature& signature) {
  return static_cast<std::size_t>(num_elements(signature.shape)) * size_of(signature.dtype);
}

}  // namespace distrun::engine
