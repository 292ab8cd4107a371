// A group's operations on GPUs: one is moved after the other, as messages of two would be mistaken for each other.
#pragma once

#include <deque>
#include <memory>

#include "runtime/backend/mpi/device_operation.h"
#include "runtime/backend/plugin/guest.h"

namespace distrun::backend::mpi_plugin {

class DeviceQueue {
 public:
  DeviceQueue(Process& process, plugin::Host host) : process_(process), host_(host) {}

  // All on a thread that has its turn.
  void start(const Channel& channel, const distrun_backend_operation& operation, std::uint64_t token);
  // Whether anything has ended. After an error all is to be given up.
  Result<bool> progress();
  // Everything ends with `why`, or what was said first: at once, but for what the device is still at. True when all
  // has.
  bool give_up(const Status& why);
  [[nodiscard]] bool empty() const { return operations_.empty(); }

 private:
  Process& process_;
  const plugin::Host host_;
  std::deque<std::unique_ptr<DeviceOperation>> operations_;
  Status given_up_;
};

}  // namespace distrun::backend::mpi_plugin
