// Memory for large outputs, kept when TensorFlow has let them go: an operation on a fresh block spends more time on
// page faults than on the sum (50 ms for 64 MiB on a virtual machine).
#pragma once

#include <cstddef>
#include <list>
#include <mutex>

namespace distrun::tensorflow {

// Any thread.
class WarmMemory {
 public:
  // Smaller ones are in the C library's own store.
  static constexpr std::size_t kLeast = std::size_t{1} << 20;

  // Keeps blocks of at most `most` bytes together, those that were given back last.
  explicit WarmMemory(std::size_t most) : most_(most) {}
  ~WarmMemory();
  WarmMemory(const WarmMemory&) = delete;
  WarmMemory& operator=(const WarmMemory&) = delete;

  // Aligned for any use of TensorFlow's; null when there is none. The content is anything.
  void* take(std::size_t bytes);
  void give_back(void* memory, std::size_t bytes) noexcept;
  [[nodiscard]] std::size_t kept() const;

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
  };

  const std::size_t most_;
  mutable std::mutex mutex_;  // for the next two
  std::list<Block> blocks_;   // given back last: at the front
  std::size_t kept_ = 0;
};

// Of this process. Never destroyed: tensors may outlive everything else.
WarmMemory& warm_memory();

}  // namespace distrun::tensorflow
