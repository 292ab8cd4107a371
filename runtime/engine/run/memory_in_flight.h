// The CPU memory that operations in flight use, by address. The tensor table asks it before it takes a new tensor, with
// its mutex held. On a GPU, streams order the operations, so their memory is not here.
//
// Memory counts as in use until the caller has seen that the operation is done, or has released its handle. When an
// operation is done differs among ranks, and a refusal must not.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/engine/run/overlap.h"

namespace distrun::engine {

class Tensor;

class MemoryInFlight {
 public:
  // A tensor that writes what `use` reads, or uses what `use` writes. Null if there is none.
  [[nodiscard]] std::shared_ptr<const Tensor> conflict(const MemoryUse& use);
  // The memory is in use until `tensor` is free (Tensor::is_free) or destroyed.
  void add(const MemoryUse& use, const std::shared_ptr<const Tensor>& tensor);

 private:
  struct Part {
    const std::byte* begin;
    const std::byte* end;
    bool writes;
    std::optional<int> root;  // see MemoryUse
    std::weak_ptr<const Tensor> tensor;
  };
  // Parts that overlap, because all of them read or are broadcasts from one root. Regions do not overlap.
  struct Region {
    const std::byte* end = nullptr;
    std::vector<Part> parts{};
  };
  using Regions = std::map<const std::byte*, Region>;

  Regions::iterator first_overlap(const std::byte* begin, const std::byte* end);
  std::shared_ptr<const Tensor> conflict(const Part& part);
  void add(Part part);
  void drop_free_parts(Region& region);
  void sweep();

  Regions regions_;  // by begin
  std::size_t parts_ = 0;
  std::size_t sweep_at_ = 64;  // parts; so that memory that is never used again costs little
};

}  // namespace distrun::engine
