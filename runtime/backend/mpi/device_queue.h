// The operations of a group on GPUs. Only one moves at a time, because MPI could confuse the messages of two.
#pragma once

#include <deque>
#include <memory>

#include "runtime/backend/mpi/device_operation.h"
#include "runtime/backend/plugin/plugin_side.h"

namespace distrun::backend::mpi_plugin {

class DeviceQueue {
 public:
  DeviceQueue(Process& process, plugin::Host host) : process_(process), host_(host) {}

  // Call all of these with a Turn held (library/process.h).
  void start(const Channel& channel, const distrun_backend_operation& operation, std::uint64_t token);
  // Returns whether any operation has ended. After an error, call give_up().
  Result<bool> progress();
  // Ends all operations with the first `why`. This happens at once, except for operations that the device still works
  // on. Returns true when all have ended.
  bool give_up(const Status& why);
  [[nodiscard]] bool empty() const { return operations_.empty(); }

 private:
  Process& process_;
  const plugin::Host host_;
  std::deque<std::unique_ptr<DeviceOperation>> operations_;
  Status given_up_;
};

}  // namespace distrun::backend::mpi_plugin
