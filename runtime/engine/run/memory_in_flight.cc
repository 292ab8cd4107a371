#include "runtime/engine/run/memory_in_flight.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/engine/run/tensor_table.h"

namespace distrun::engine {
namespace {

bool is_free(const std::weak_ptr<const Tensor>& tensor) {
  const auto alive = tensor.lock();
  return alive == nullptr || alive->is_free();
}

}  // namespace

std::shared_ptr<const Tensor> MemoryInFlight::conflict(const MemoryUse& use) {
  const auto look = [&](const std::byte* begin, std::size_t bytes, bool writes) {
    return conflict({.begin = begin, .end = begin + bytes, .writes = writes, .root = use.root, .tensor = {}});
  };
  if (use.output_bytes > 0) {
    if (auto found = look(use.output, use.output_bytes, true)) return found;
    if (use.input == use.output) return nullptr;
  }
  return use.input_bytes > 0 ? look(use.input, use.input_bytes, false) : nullptr;
}

std::shared_ptr<const Tensor> MemoryInFlight::conflict(const Part& part) {
  for (auto at = first_overlap(part.begin, part.end); at != regions_.end() && at->first < part.end; ++at) {
    drop_free_parts(at->second);
    for (const Part& other : at->second.parts) {
      const bool harmless = (!part.writes && !other.writes) || (part.root && part.root == other.root);
      if (!harmless && other.begin < part.end && part.begin < other.end) return other.tensor.lock();
    }
  }
  return nullptr;
}

void MemoryInFlight::add(const MemoryUse& use, const std::shared_ptr<const Tensor>& tensor) {
  if (parts_ >= sweep_at_) sweep();
  const auto put = [&](const std::byte* begin, std::size_t bytes, bool writes) {
    add({.begin = begin, .end = begin + bytes, .writes = writes, .root = use.root, .tensor = tensor});
  };
  if (use.output_bytes > 0) put(use.output, use.output_bytes, true);
  if (use.input_bytes > 0 && (use.input != use.output || use.output_bytes == 0)) put(use.input, use.input_bytes, false);
}

void MemoryInFlight::add(Part part) {
  ++parts_;
  auto at = first_overlap(part.begin, part.end);
  if (at != regions_.end() && at->first == part.begin && at->second.end >= part.end) {  // the same memory as before
    at->second.parts.push_back(std::move(part));
    return;
  }
  const std::byte* begin = part.begin;
  const std::byte* const end = part.end;
  Region whole{.end = end};
  while (at != regions_.end() && at->first < end) {
    begin = std::min(begin, at->first);
    whole.end = std::max(whole.end, at->second.end);
    std::ranges::move(at->second.parts, std::back_inserter(whole.parts));
    at = regions_.erase(at);
  }
  whole.parts.push_back(std::move(part));
  regions_.emplace_hint(at, begin, std::move(whole));
}

MemoryInFlight::Regions::iterator MemoryInFlight::first_overlap(const std::byte* begin, const std::byte* end) {
  auto at = regions_.upper_bound(begin);
  if (at != regions_.begin() && std::prev(at)->second.end > begin) return std::prev(at);
  return at != regions_.end() && at->first < end ? at : regions_.end();
}

void MemoryInFlight::drop_free_parts(Region& region) {
  parts_ -= std::erase_if(region.parts, [](const Part& part) { return is_free(part.tensor); });
}

void MemoryInFlight::sweep() {
  for (auto at = regions_.begin(); at != regions_.end();) {
    drop_free_parts(at->second);
    at = at->second.parts.empty() ? regions_.erase(at) : std::next(at);
  }
  sweep_at_ = std::max<std::size_t>(64, 2 * parts_);
}

}  // namespace distrun::engine
