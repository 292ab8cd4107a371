// One group of a plug-in. All calls through the plug-in's table are here. The callers (plugin_backend.cc and worker.cc)
// decide which thread makes a call; distrun_backend.h has the rules.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/factory.h"
#include "runtime/backend/plugin/host_group.h"
#include "runtime/backend/plugin/library.h"

namespace distrun::backend::plugin {

// An operation as the plug-in's struct. It owns the arrays that the struct points to.
class PluginOperation {
 public:
  PluginOperation(const Operation& operation, const GroupSpec& group);
  PluginOperation(const PluginOperation&) = delete;
  PluginOperation& operator=(const PluginOperation&) = delete;
  [[nodiscard]] const distrun_backend_operation* get() const { return &operation_; }

 private:
  std::vector<distrun_backend_segment> segments_;
  std::vector<std::uint64_t> counts_;
  std::vector<std::uint64_t> recv_counts_;
  std::vector<void*> marks_;
  distrun_backend_operation operation_{};
};

// A group's description as the plug-in's struct. It points into `group` and `services`.
distrun_backend_group_spec spec_of(const GroupSpec& group, const Services& services, TimePoint deadline,
                                   std::int32_t device_type);

class PluginGroup {
 public:
  // `waited_for`: see HostGroup.
  PluginGroup(std::shared_ptr<const Library> library, const GroupSpec& group, const Services& services,
              bool waited_for);
  ~PluginGroup();
  PluginGroup(const PluginGroup&) = delete;
  PluginGroup& operator=(const PluginGroup&) = delete;

  Status create(TimePoint deadline);
  Status start(const PluginOperation& operation, std::uint64_t token);
  // True if the operation has ended; otherwise the caller starts it. Any thread, while nothing is in flight.
  bool try_now(const PluginOperation& operation);
  [[nodiscard]] bool has_progress() const { return library_->table().progress != nullptr; }
  bool progress();
  [[nodiscard]] int wait_fd();
  Result<Memory> allocate(Device device, std::size_t bytes, std::span<const std::byte> element);
  Result<Memory> stage(Device device, std::size_t bytes);
  void abort(const Status& why);  // any thread, between create() and destroy()
  void destroy();

  HostGroup& host() { return host_; }
  [[nodiscard]] const HostGroup& host() const { return host_; }

 private:
  std::shared_ptr<const Library> library_;
  const GroupSpec spec_;  // its id includes the device
  Services services_;
  HostGroup host_;
  HostStore store_;
  distrun_backend_group* group_ = nullptr;
  std::atomic<bool> aborted_{false};
};

}  // namespace distrun::backend::plugin
