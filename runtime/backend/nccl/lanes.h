// The lanes of this process, one for each GPU whose tensors distrun has got. A lane is made on first use and kept until
// the process ends: destructors at the end of the process must not call the driver.
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
  // `image`: see Gpu.
  Lanes(Libraries libraries, const char* image) : libraries_(std::move(libraries)), image_(image) {}
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Any thread. The first use of a GPU sets it up.
  Result<Lane*> lane(int gpu);
  // Count the groups. If other groups remain, the communicator of a closing group is closed when its peers close
  // theirs. The last group ends with the session: it waits some seconds for all communicators.
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
