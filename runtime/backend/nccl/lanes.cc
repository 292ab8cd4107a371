#include "runtime/backend/nccl/lanes.h"

namespace distrun::backend::nccl_plugin {

namespace {

// Time for closing with the peers. They may be gone.
constexpr double kClosingSeconds = 5;

}  // namespace

Result<Lane*> Lanes::lane(int gpu) {
  const MutexLock lock(mutex_);
  if (const auto found = lanes_.find(gpu); found != lanes_.end()) return found->second.get();
  auto opened = Gpu::open(libraries_.cuda, gpu, image_);
  if (!opened.ok()) return opened.status();
  auto lane = std::make_unique<Lane>(*std::move(opened));
  if (Status started = lane->start_thread(); !started.ok()) return started;
  return (lanes_[gpu] = std::move(lane)).get();
}

void Lanes::group_goes() {
  if (groups_.fetch_sub(1) > 1) return;
  const TimePoint deadline = deadline_after(kClosingSeconds);
  std::vector<std::future<void>> closed;
  {
    const MutexLock lock(mutex_);
    for (const auto& [gpu, lane] : lanes_) closed.push_back(lane->close_all(deadline));
  }
  for (const std::future<void>& one : closed) one.wait();
}

}  // namespace distrun::backend::nccl_plugin
