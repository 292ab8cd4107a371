#include "runtime/backend/mpi/device_queue.h"

#include <utility>

namespace distrun::backend::mpi_plugin {

void DeviceQueue::start(const Channel& channel, const distrun_backend_operation& operation, std::uint64_t token) {
  flights_.push_back(std::make_unique<DeviceFlight>(channel, operation, token));
}

Result<bool> DeviceQueue::progress() {
  bool any = false;
  while (!flights_.empty()) {
    DeviceFlight& first = *flights_.front();
    DISTRUN_RETURN_IF_ERROR(first.test());
    if (!first.done()) break;
    first.finish();
    const std::uint64_t token = first.token();
    flights_.pop_front();
    host_.complete(token, {});
    any = true;
  }
  return any;
}

// What MPI has of them stays, and so does the memory.
bool DeviceQueue::give_up(const Status& why) {
  if (given_up_.ok()) given_up_ = why;
  std::erase_if(flights_, [this](std::unique_ptr<DeviceFlight>& flight) {
    if (!flight->let_go()) return false;
    host_.complete(flight->token(), given_up_);
    process_.keep(std::shared_ptr<DeviceFlight>(std::move(flight)));
    return true;
  });
  return flights_.empty();
}

}  // namespace distrun::backend::mpi_plugin
