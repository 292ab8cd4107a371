#include "bindings/tensorflow/warm_memory.h"

#include <algorithm>
#include <new>

namespace distrun::tensorflow {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr std::size_t kMost = std::size_t{256} << 20;

}  // namespace

WarmMemory::~WarmMemory() {
  for (const Block& block : blocks_) ::operator delete(block.memory, kAlignment);
}

// Takes a block of exactly this size, since every training step needs the same sizes.
void* WarmMemory::take(std::size_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::ranges::find(blocks_, bytes, &Block::bytes);
    if (found != blocks_.end()) {
      void* const memory = found->memory;
      blocks_.erase(found);
      kept_ -= bytes;
      return memory;
    }
  }
  return ::operator new(bytes, kAlignment, std::nothrow);
}

void WarmMemory::give_back(void* memory, std::size_t bytes) noexcept {
  std::list<Block> surplus;
  try {
    surplus.push_back({.memory = memory, .bytes = bytes});
  } catch (const std::bad_alloc&) {
    return ::operator delete(memory, kAlignment);
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes <= most_) {
      blocks_.splice(blocks_.begin(), surplus);
      kept_ += bytes;
    }
    while (kept_ > most_) {
      kept_ -= blocks_.back().bytes;
      surplus.splice(surplus.begin(), blocks_, std::prev(blocks_.end()));
    }
  }
  for (const Block& block : surplus) ::operator delete(block.memory, kAlignment);
}

std::size_t WarmMemory::kept() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return kept_;
}

WarmMemory& warm_memory() {
  static auto* const the_one = new WarmMemory(kMost);
  return *the_one;
}

}  // namespace distrun::tensorflow
