// A backend that receives every operation of the conformance suite on one GPU.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backend/backend.h"

namespace distrun::test {

class OnGpu final : public backend::Backend {
 public:
  // `name`: the name that it reports; empty: the name of `inner`.
  OnGpu(std::unique_ptr<backend::Backend> inner, int gpu, std::string name = {})
      : inner_(std::move(inner)),
        name_(std::move(name)),
        device_{.type = DeviceType::kCuda, .index = static_cast<std::int16_t>(gpu)} {}
  [[nodiscard]] std::string_view name() const override {
    return name_.empty() ? inner_->name() : std::string_view(name_);
  }
  [[nodiscard]] const backend::Capabilities& capabilities() const override { return inner_->capabilities(); }
  Status start(const backend::Operation& operation, std::uint64_t token) override {
    backend::Operation moved = operation;
    moved.device = device_;
    return inner_->start(moved, token);
  }
  bool progress() override { return inner_->progress(); }
  void completed(std::vector<backend::Completed>& out) override { inner_->completed(out); }
  void abort(const Status& why) override { inner_->abort(why); }
  [[nodiscard]] std::optional<EndedLink> lost_peer() const override { return inner_->lost_peer(); }

 private:
  std::unique_ptr<backend::Backend> inner_;
  const std::string name_;
  Device device_;
};

}  // namespace distrun::test
