// A wrapper for a plug-in that has different versions on two members. It refuses on all members what only some of them
// support.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/backend/backend.h"

namespace distrun::backend {

class LimitedBackend final : public Backend {
 public:
  // Removes the bits that this member `offered` and that are missing in `all`.
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
