#include "runtime/backend/nccl/lanes.h"

namespace distrun::backend::nccl_plugin {

Result<Lane*> Lanes::lane(int gpu) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = lanes_.find(gpu); found != lanes_.end()) return found->second.get();
  auto opened = Gpu::open(libraries_, gpu, image_);
  if (!opened.ok()) return opened.status();
  auto lane = std::make_unique<Lane>(*std::move(opened));
  lane->start_thread();
  return (lanes_[gpu] = std::move(lane)).get();
}

}  // namespace distrun::backend::nccl_plugin
