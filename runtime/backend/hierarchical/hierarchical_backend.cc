#include "runtime/backend/hierarchical/hierarchical_backend.h"

#include <utility>

namespace distrun::backend::hierarchical {

// No scatter_gather: the executor packs and scales, because a piece is cut from one row of elements.
Capabilities hierarchical_capabilities(const Capabilities& between) {
  return {.ops = between.ops,
          .dtypes = between.dtypes,
          .devices = 1U << static_cast<unsigned>(DeviceType::kCpu),
          .exclusive = between.exclusive,
          .moved_by = between.moved_by == MovedBy::kCalls ? MovedBy::kCalls : MovedBy::kMemory};
}

namespace {

// On a device the executor cannot pack, so this backend takes any number of segments, and the pipeline scales.
Capabilities capabilities_of(const Parts& parts) {
  if (parts.device == DeviceType::kCpu) return hierarchical_capabilities(parts.across);
  Capabilities can = parts.flat->capabilities();
  can.dtypes &= parts.across.dtypes;
  can.exclusive = true;
  if (parts.between != nullptr && parts.across.moved_by == MovedBy::kCalls) can.moved_by = MovedBy::kCalls;
  return can;
}

}  // namespace

HierarchicalBackend::HierarchicalBackend(Parts parts)
    : parts_(std::move(parts)),
      capabilities_(capabilities_of(parts_)),
      stages_{parts_.scatter.get(), parts_.between.get(), parts_.gather.get()},
      pipeline_(parts_.layout, parts_.members,
                {.scatter = parts_.scatter.get(),
                 .between = parts_.between.get(),
                 .gather = parts_.gather.get(),
                 .piece_bytes = parts_.piece_bytes,
                 .on_device = parts_.device != DeviceType::kCpu}) {}

Status HierarchicalBackend::start(const Operation& operation, std::uint64_t token) {
  if (aborted_.requested()) return aborted_.why();
  if (operation.kind != OpKind::kAllreduce) return parts_.flat->start(operation, token);
  return pipeline_.start(operation, token);
}

bool HierarchicalBackend::progress() {
  if (aborted_.requested()) pipeline_.fail(aborted_.why());
  bool moved = pipeline_.progress();
  for (Backend* stage : stages_) moved = (stage != nullptr && stage->progress()) || moved;
  moved = parts_.flat->progress() || moved;
  if (!collect()) return moved;
  // A piece that failed in one stage never reaches the next ones. So abort all stages of this member; its peers notice
  // it.
  if (!pipeline_.failure().ok()) abort(pipeline_.failure());
  pipeline_.progress();
  return true;
}

bool HierarchicalBackend::collect() {
  bool any = false;
  for (std::size_t number = 0; number < stages_.size(); ++number) {
    if (stages_[number] == nullptr) continue;
    scratch_.clear();
    stages_[number]->completed(scratch_);
    any = any || !scratch_.empty();
    for (const Completed& one : scratch_) pipeline_.ended(number, one);
  }
  return any;
}

void HierarchicalBackend::completed(std::vector<Completed>& out) {
  pipeline_.completed(out);
  parts_.flat->completed(out);
}

void HierarchicalBackend::abort(const Status& why) {
  aborted_.set(why);
  for (Backend* stage : stages_) {
    if (stage != nullptr) stage->abort(why);
  }
  parts_.flat->abort(why);
}

Result<Memory> HierarchicalBackend::allocate(Device device, std::size_t bytes, std::span<const std::byte> element) {
  return parts_.flat->allocate(device, bytes, element);
}

std::optional<EndedLink> HierarchicalBackend::lost_peer() const {
  for (const Backend* stage : stages_) {
    if (stage == nullptr) continue;
    if (auto lost = stage->lost_peer()) return lost;
  }
  return parts_.flat->lost_peer();
}

}  // namespace distrun::backend::hierarchical
