// A backend that can do here what it cannot do on another member, a plug-in of two versions: what is not known to all
// members alike is refused on all.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/backend/backend.h"

namespace distrun::backend {

class LimitedBackend final : public Backend {
 public:
  // Without what this member `offered` and `all` did not.
  LimitedBackend(std::unique_ptr<Backend> inner, const Capabilities& offered, const Capabilities& all)
      : inner_(std::move(inner)), can_(inner_->capabilities()) {
    can_.ops &= ~(offered.ops & ~all.ops);
    can_.dtypes &= ~(offered.dtypes & ~all.dtypes);
  }
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] const Capabilities& capabilities() const override { return can_; }
  Status start(const Operation& operation, std::uint64_t token) override { return inner_->start(operation, token); }
  bool progress() override { return inner_->progress(); }
  void completed(std::vector<Completed>& out) override { inner_->completed(out); }
  void abort(const Status& why) override { inner_->abort(why); }
  [[nodiscard]] std::optional<EndedLink> lost_peer() const override { return inner_->lost_peer(); }
  Result<Memory> allocate(Device device, std::size_t bytes, std::span<const std::byte> element) override {
    return inner_->allocate(device, bytes, element);
  }
  Result<Memory> stage(Device device, std::size_t bytes) override { return inner_->stage(device, bytes); }

 private:
  const std::unique_ptr<Backend> inner_;
  Capabilities can_;
};

}  // namespace distrun::backend
