// A placeholder for a device without a usable backend. Tensors of this device fail on all members with the same reason.
#pragma once

#include <string_view>
#include <utility>

#include "runtime/backend/backend.h"

namespace distrun::backend {

class AbsentBackend final : public Backend {
 public:
  // All members know the same offers, so `why` is the same on all of them.
  AbsentBackend(DeviceType device, Status why) : why_(std::move(why)) {
    can_ = {.ops = ~0U, .dtypes = ~0U, .devices = 1U << static_cast<unsigned>(device), .scatter_gather = true};
  }
  [[nodiscard]] std::string_view name() const override { return "none"; }
  [[nodiscard]] const Capabilities& capabilities() const override { return can_; }
  [[nodiscard]] Status can(OpKind, DType) const override { return why_; }
  Status start(const Operation&, std::uint64_t) override { return why_; }
  bool progress() override { return false; }
  void completed(std::vector<Completed>&) override {}
  void abort(const Status&) override {}
  [[nodiscard]] std::optional<EndedLink> lost_peer() const override { return std::nullopt; }
  Result<Memory> allocate(Device, std::size_t, std::span<const std::byte>) override { return why_; }

 private:
  Status why_;
  Capabilities can_;
};

}  // namespace distrun::backend
