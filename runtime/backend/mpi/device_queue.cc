#include "runtime/backend/mpi/device_queue.h"

#include <utility>

namespace distrun::backend::mpi_plugin {

void DeviceQueue::start(const Channel& channel, const distrun_backend_operation& operation, std::uint64_t token) {
  operations_.push_back(std::make_unique<DeviceOperation>(channel, operation, token));
}

Result<bool> DeviceQueue::progress() {
  bool any = false;
  while (!operations_.empty()) {
    DeviceOperation& first = *operations_.front();
    DISTRUN_RETURN_IF_ERROR(first.test());
    if (!first.done()) break;
    first.finish();
    const std::uint64_t token = first.token();
    operations_.pop_front();
    host_.complete(token, {});
    any = true;
  }
  return any;
}

// MPI still has their requests, so the operations and their memory are kept.
bool DeviceQueue::give_up(const Status& why) {
  if (given_up_.ok()) given_up_ = why;
  std::erase_if(operations_, [this](std::unique_ptr<DeviceOperation>& one) {
    if (!one->let_go()) return false;
    host_.complete(one->token(), given_up_);
    process_.keep(std::shared_ptr<DeviceOperation>(std::move(one)));
    return true;
  });
  return operations_.empty();
}

}  // namespace distrun::backend::mpi_plugin
