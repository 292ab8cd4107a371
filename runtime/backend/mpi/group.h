// One group of ranks on an MPI communicator. It uses nonblocking calls. distrun calls progress() repeatedly while
// operations are in flight, because MPI has no descriptor to wait for.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/mpi/device_queue.h"
#include "runtime/backend/mpi/host_operation.h"
#include "runtime/backend/plugin/plugin_side.h"

namespace distrun::backend::mpi_plugin {

class MpiGroup {
 public:
  static Result<std::unique_ptr<MpiGroup>> create(Process& process, const distrun_backend_group_spec& spec,
                                                  plugin::Host host);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  void start(const distrun_backend_operation& operation, std::uint64_t token);
  bool progress();
  void abort(std::int32_t code, const char* cause);  // any thread

 private:
  MpiGroup(Process& process, bool on_device, plugin::Host host)
      : process_(process), host_(host), on_device_(on_device), device_(process, host) {}
  Status connect(const distrun_backend_group_spec& spec);
  Status make_communicator(const std::string& id, const std::vector<int>& ranks);
  [[nodiscard]] Status usable() const;
  void give_up(const Status& why);
  bool progress_device();

  Process& process_;
  plugin::Host host_;
  std::shared_ptr<RingMemory> memory_ = std::make_shared<RingMemory>();
  Channel channel_;
  const bool on_device_;  // whether this group's tensors are on a device
  DeviceQueue device_;    // if on_device_, used instead of operations_
  std::deque<std::unique_ptr<HostOperation>> operations_;
  plugin::AbortGate aborted_;
};

}  // namespace distrun::backend::mpi_plugin
