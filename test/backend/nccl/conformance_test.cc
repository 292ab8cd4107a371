// The conformance suite on the plug-in `nccl` above a fake of CUDA and NCCL: each rank is a thread with a GPU of its
// own, whose memory is the process's.
#include <utility>

#include "runtime/backend/plugin/loader.h"
#include "test/backend/group_fixtures.h"

namespace distrun::test {
namespace {

// Puts every operation on one GPU.
class OnGpu final : public backend::Backend {
 public:
  OnGpu(std::unique_ptr<backend::Backend> inner, int gpu)
      : inner_(std::move(inner)), device_{.type = DeviceType::kCuda, .index = static_cast<std::int16_t>(gpu)} {}
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] const backend::Capabilities& capabilities() const override { return inner_->capabilities(); }
  Status start(const backend::Operation& operation, std::uint64_t token) override {
    backend::Operation moved = operation;
    moved.device = device_;
    return inner_->start(moved, token);
  }
  bool progress() override { return inner_->progress(); }
  void completed(std::vector<backend::Completed>& out) override { inner_->completed(out); }
  void abort(const Status& why) override { inner_->abort(why); }
  [[nodiscard]] int lost_peer() const override { return inner_->lost_peer(); }

 private:
  std::unique_ptr<backend::Backend> inner_;
  Device device_;
};

Result<std::unique_ptr<backend::Backend>> make(const backend::GroupSpec& group, const backend::Services& services,
                                               TimePoint deadline) {
  Settings settings;
  settings.plugins = DISTRUN_NCCL_PLUGIN;
  const auto plugins = backend::plugin::load_plugins(settings, "/nonexistent");
  if (plugins.factories.size() != 1) return Status(Errc::kInternal, "the plug-in was not found");
  const backend::Offer offer = plugins.factories[0]->offer(group, services);
  if (!offer.available) return Status(Errc::kUnsupported, offer.reason);
  auto made = plugins.factories[0]->create(group, services, deadline);
  if (!made.ok()) return made.status();
  return std::unique_ptr<backend::Backend>(std::make_unique<OnGpu>(*std::move(made), group.index));
}

}  // namespace

const Subject& subject() {
  static const Subject nccl = {.name = "nccl",
                               .sizes = {1, 2, 3, 4, 5, 8},
                               .make = [](int size) { return std::make_unique<ThreadGroup>(size, make); },
                               .forked = {},
                               .boundaries = {4096, 65536}};  // a tile of the kernels
  return nccl;
}

}  // namespace distrun::test
