// One group of ranks on NCCL. It has a communicator, created by the first operation, and the lane of the one GPU that
// has this member's tensors.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "runtime/backend/nccl/lanes.h"

namespace distrun::backend::nccl_plugin {

class NcclGroup {
 public:
  // `lanes` must outlive the group.
  NcclGroup(Lanes& lanes, const distrun_backend_group_spec& spec, plugin::Host host);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  void start(const distrun_backend_operation& operation, std::uint64_t token);
  void abort(std::int32_t code, const char* cause);  // any thread

 private:
  Status choose_lane(const distrun_backend_operation& operation);

  Lanes& lanes_;
  plugin::Host host_;
  const std::shared_ptr<LaneGroup> lane_group_;
  std::atomic<Lane*> lane_{nullptr};
};

}  // namespace distrun::backend::nccl_plugin
