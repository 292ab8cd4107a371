// The lanes of this process, one per GPU that distrun has been given tensors on. Made on first use, kept until the
// process ends: the driver must not be called from a destructor of the process's end.
#pragma once

#include <atomic>
#include <map>
#include <memory>

#include "runtime/backend/nccl/lane.h"
#include "runtime/backend/nccl/libraries.h"
#include "runtime/base/annotations.h"

namespace distrun::backend::nccl_plugin {

class Lanes {
 public:
  // `image` as in Gpu.
  Lanes(Libraries libraries, const char* image) : libraries_(std::move(libraries)), image_(image) {}
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Any thread. The first use of a GPU sets it up.
  Result<Lane*> lane(int gpu);
  // Groups come and go. While there are others, one that goes leaves its communicator to be closed when the peers close
  // theirs; the last one is the session's end: it waits for all, for some seconds.
  void group_comes() { groups_.fetch_add(1); }
  void group_goes();
  [[nodiscard]] const Libraries& libraries() const { return libraries_; }

 private:
  const Libraries libraries_;
  const char* const image_;
  Mutex mutex_;
  std::map<int, std::unique_ptr<Lane>> lanes_ DISTRUN_GUARDED_BY(mutex_);
  std::atomic<int> groups_ = 0;
};

}  // namespace distrun::backend::nccl_plugin
