// The lanes of this process, one per GPU that distrun has been given tensors on. Made on first use, kept until the
// process ends: the driver must not be called from a destructor of the process's end.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "runtime/backend/nccl/lane.h"

namespace distrun::backend::nccl_plugin {

class Lanes {
 public:
  // `image` as in Gpu.
  Lanes(Libraries libraries, const char* image) : libraries_(std::move(libraries)), image_(image) {}
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Any thread. The first use of a GPU sets it up.
  Result<Lane*> lane(int gpu);
  [[nodiscard]] const Libraries& libraries() const { return libraries_; }

 private:
  const Libraries libraries_;
  const char* const image_;
  std::mutex mutex_;
  std::map<int, std::unique_ptr<Lane>> lanes_;
};

}  // namespace distrun::backend::nccl_plugin
