// Memory for large outputs, kept after TensorFlow has freed them. With a fresh block an operation spends more time on
// page faults than on the sum (50 ms for 64 MiB on a virtual machine).
#pragma once

#include <cstddef>
#include <list>
#include <mutex>

namespace distrun::tensorflow {

// Any thread.
class WarmMemory {
 public:
  // The C library itself keeps smaller blocks.
  static constexpr std::size_t kLeast = std::size_t{1} << 20;

  // Keeps at most `most` bytes in all: the blocks that were given back last.
  explicit WarmMemory(std::size_t most) : most_(most) {}
  ~WarmMemory();
  WarmMemory(const WarmMemory&) = delete;
  WarmMemory& operator=(const WarmMemory&) = delete;

  // Aligned for any use by TensorFlow. Null if there is no memory. The content is undefined.
  void* take(std::size_t bytes);
  void give_back(void* memory, std::size_t bytes) noexcept;
  [[nodiscard]] std::size_t kept() const;

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
  };

  const std::size_t most_;
  mutable std::mutex mutex_;  // guards blocks_ and kept_
  std::list<Block> blocks_;   // the block given back last is first
  std::size_t kept_ = 0;
};

// The instance of this process. It is never destroyed, since tensors may outlive everything else.
WarmMemory& warm_memory();

}  // namespace distrun::tensorflow
