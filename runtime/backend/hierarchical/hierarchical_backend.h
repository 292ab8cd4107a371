// Two methods in one backend. All-reduces go through a Pipeline: shared memory inside each host (or nccl, for tensors
// on GPUs), and another backend between the hosts. All other operations use a flat group of all members.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/abort_state.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/hierarchical/pipeline.h"

namespace distrun::backend::hierarchical {

// For tensors in host memory. `between` are the capabilities of the backend between the hosts.
Capabilities hierarchical_capabilities(const Capabilities& between);

struct Parts {
  DeviceType device = DeviceType::kCpu;
  Layout layout;
  std::size_t members = 0;
  Capabilities across;  // of the backend between the hosts; also set on members without a lane
  std::unique_ptr<Backend> scatter;
  std::unique_ptr<Backend> between;  // null for a member without a lane
  std::unique_ptr<Backend> gather;
  std::unique_ptr<Backend> flat;
  std::size_t piece_bytes = kPieceBytes;
};

class HierarchicalBackend final : public Backend {
 public:
  explicit HierarchicalBackend(Parts parts);

  [[nodiscard]] std::string_view name() const override { return "hierarchical"; }
  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  Status start(const Operation& operation, std::uint64_t token) override;
  bool progress() override;
  void completed(std::vector<Completed>& out) override;
  void abort(const Status& why) override;
  [[nodiscard]] std::optional<EndedLink> lost_peer() const override;
  Result<Memory> allocate(Device device, std::size_t bytes, std::span<const std::byte> element) override;

 private:
  bool collect();

  const Parts parts_;
  const Capabilities capabilities_;
  const std::vector<Backend*> stages_;  // scatter, between (may be null), gather
  Pipeline pipeline_;
  std::vector<Completed> scratch_;
  AbortState aborted_;
};

}  // namespace distrun::backend::hierarchical
