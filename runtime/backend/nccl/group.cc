#include "runtime/backend/nccl/group.h"

namespace distrun::backend::nccl_plugin {

NcclGroup::NcclGroup(Lanes& lanes, const distrun_backend_group_spec& spec, plugin::Host host)
    : lanes_(lanes),
      host_(host),
      lane_group_(std::make_shared<LaneGroup>(lanes.libraries().nccl,
                                              Communicator::Spec{.index = spec.index,
                                                                 .members = static_cast<int>(spec.num_members),
                                                                 .seconds = spec.seconds,
                                                                 .store = spec.store},
                                              host)) {
  lanes_.group_comes();
}

NcclGroup::~NcclGroup() {
  if (Lane* lane = lane_.load(); lane != nullptr) lane->leave(lane_group_).wait();
  lanes_.group_goes();
}

// A communicator has one GPU. The engine has already refused a second GPU of a rank when the tensor was submitted.
Status NcclGroup::choose_lane(const distrun_backend_operation& operation) {
  Lane* lane = lane_.load();
  if (lane == nullptr) {
    auto found = lanes_.lane(operation.device_index);
    if (!found.ok()) return found.status();
    lane_.store(*found);
    return {};
  }
  if (operation.kind == DISTRUN_BACKEND_BARRIER || lane->gpu().index() == operation.device_index) return {};
  return {Errc::kSystem,
          "nccl: the tensors of this rank in the process set are on cuda:" + std::to_string(lane->gpu().index()) +
              ", and this one is on cuda:" + std::to_string(operation.device_index) +
              ". Use one GPU per rank and process set"};
}

void NcclGroup::start(const distrun_backend_operation& operation, std::uint64_t token) {
  Status status = lane_group_->aborted.why();
  if (status.ok()) status = choose_lane(operation);
  if (!status.ok()) return host_.complete(token, status);
  lane_.load()->submit(*lane_group_, operation, token);
}

void NcclGroup::abort(std::int32_t code, const char* cause) {
  lane_group_->aborted.set(code, cause);
  if (Lane* lane = lane_.load(); lane != nullptr) lane->give_up();
}

}  // namespace distrun::backend::nccl_plugin
