// One group of a plug-in: every call through the table, in one place. Who calls on which thread is the users' concern
// (plugin_backend.cc and worker.cc); the rules are in distrun_backend.h.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/factory.h"
#include "runtime/backend/plugin/host_group.h"
#include "runtime/backend/plugin/library.h"

namespace distrun::backend::plugin {

// An operation in the plug-in's terms, with the memory that its pointers point to.
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

// A group's description in the plug-in's terms. Points into `group` and `services`.
distrun_backend_group_spec spec_of(const GroupSpec& group, const Services& services, TimePoint deadline,
                                   std::int32_t device_type);

class PluginGroup {
 public:
  // `waited_for`: as HostGroup's.
  PluginGroup(std::shared_ptr<const Library> library, const GroupSpec& group, const Services& services,
              bool waited_for);
  ~PluginGroup();
  PluginGroup(const PluginGroup&) = delete;
  PluginGroup& operator=(const PluginGroup&) = delete;

  Status create(TimePoint deadline);
  Status start(const PluginOperation& operation, std::uint64_t token);
  // True if the operation has ended; otherwise it is to be started. Any thread, with nothing in flight.
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
  const GroupSpec spec_;  // with the device in its id
  Services services_;
  HostGroup host_;
  HostStore store_;
  distrun_backend_group* group_ = nullptr;
  std::atomic<bool> aborted_{false};
};

}  // namespace distrun::backend::plugin
