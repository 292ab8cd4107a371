#include "runtime/engine/readiness/fusion.h"

#include <bit>
#include <map>
#include <tuple>

namespace distrun::engine {
namespace {

using FusionKey = std::tuple<int, DType, ReduceOp, DeviceType, std::uint64_t, std::uint64_t>;

FusionKey key_of(const FusionCandidate& candidate) {
  const Signature& s = *candidate.signature;
  return {candidate.set,
          s.dtype,
          s.reduce,
          s.device,
          std::bit_cast<std::uint64_t>(s.prescale),
          std::bit_cast<std::uint64_t>(s.postscale)};
}

// One tensor, or the tensors of one group that have one key. A unit is never split.
struct Unit {
  FusionKey key;
  std::vector<std::size_t> positions;
  std::uint64_t bytes = 0;
  bool fusable = false;
};

std::vector<Unit> units_of(std::span<const FusionCandidate> ready) {
  std::vector<Unit> units;
  std::map<std::pair<std::uint64_t, FusionKey>, std::size_t> groups;
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const Signature& signature = *ready[i].signature;
    const bool fusable = traits_of(signature.kind).fuses;
    const FusionKey key = key_of(ready[i]);
    std::size_t unit = units.size();
    if (fusable && signature.group.size != 0) {
      unit = groups.try_emplace({signature.group.digest, key}, unit).first->second;
    }
    if (unit == units.size()) units.push_back({.key = key, .fusable = fusable});
    units[unit].positions.push_back(i);
    units[unit].bytes += payload_bytes(signature);
  }
  return units;
}

}  // namespace

std::vector<std::vector<std::size_t>> plan_fusion(std::span<const FusionCandidate> ready, const FusionLimits& limits) {
  if (ready.size() == 1) return {{0}};
  struct Open {
    std::size_t batch;
    std::uint64_t bytes;
  };
  std::vector<std::vector<std::size_t>> batches;
  std::map<FusionKey, Open> open;  // the last batch of each key while it has room
  for (Unit& unit : units_of(ready)) {
    const auto found = unit.fusable ? open.find(unit.key) : open.end();
    if (found != open.end() && found->second.bytes + unit.bytes <= limits.bytes &&
        batches[found->second.batch].size() + unit.positions.size() <= limits.tensors) {
      auto& batch = batches[found->second.batch];
      batch.insert(batch.end(), unit.positions.begin(), unit.positions.end());
      found->second.bytes += unit.bytes;
      continue;
    }
    if (unit.fusable) open[unit.key] = {.batch = batches.size(), .bytes = unit.bytes};
    batches.push_back(std::move(unit.positions));
  }
  return batches;
}

}  // namespace distrun::engine
