#include "runtime/backend/self/self_backend.h"

#include <deque>
#include <utility>

#include "runtime/backend/abort_state.h"
#include "runtime/backend/kernels/copy.h"
#include "runtime/backend/kernels/kernels.h"

namespace distrun::backend {
namespace {

constexpr int kSelfScore = 100;

Capabilities self_capabilities() {
  return {.ops = (1U << kNumOpKinds) - 1,
          .dtypes = (1U << kNumDTypes) - 1,
          .devices = 1U << static_cast<unsigned>(DeviceType::kCpu),
          .scatter_gather = true,
          .revocable = true};
}

// Rounds like the backends that move data: first rounds the prescaled input to the dtype.
void reduce(const Operation& operation, const Segment& segment) {
  kernels::scale(operation.dtype, operation.prescale, segment.in, segment.out, segment.count);
  kernels::scale(operation.dtype, operation.postscale, segment.out, segment.out, segment.count);
}

void copy(const Operation& operation, const Segment& segment) {
  const std::size_t bytes = segment.count * size_of(operation.dtype);
  if (segment.in != segment.out) kernels::copy(segment.out, segment.in, bytes);
}

class SelfBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "self"; }
  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }

  Status start(const Operation& operation, std::uint64_t token) override {
    if (aborted_.requested()) return aborted_.why();
    if (operation.device.type != DeviceType::kCpu) {
      return {Errc::kUnsupported, "the backend self needs tensors in CPU memory. Copy the tensor to the CPU first"};
    }
    queue_.push_back({operation, token});
    return {};
  }

  bool progress() override {
    if (queue_.empty()) return false;
    const Queued next = queue_.front();
    queue_.pop_front();
    if (!aborted_.requested()) run(next.operation);
    done_.push_back({.token = next.token, .status = aborted_.why()});
    return true;
  }

  void completed(std::vector<Completed>& out) override {
    out.insert(out.end(), std::make_move_iterator(done_.begin()), std::make_move_iterator(done_.end()));
    done_.clear();
  }

  void abort(const Status& why) override { aborted_.set(why); }
  [[nodiscard]] std::optional<EndedLink> lost_peer() const override { return std::nullopt; }

 private:
  struct Queued {
    Operation operation;
    std::uint64_t token = 0;
  };

  static void run(const Operation& operation) {
    for (const Segment& segment : operation.segments) {
      if (traits_of(operation.kind).reduces) {
        reduce(operation, segment);
      } else {
        copy(operation, segment);
      }
    }
  }

  const Capabilities capabilities_ = self_capabilities();
  std::deque<Queued> queue_;
  std::vector<Completed> done_;
  AbortState aborted_;
};

class SelfFactory final : public Factory {
 public:
  [[nodiscard]] std::string_view name() const override { return "self"; }

  [[nodiscard]] Offer offer(const GroupSpec& group, const Services&) const override {
    const bool alone = group.members.size() == 1;
    return {.backend = "self",
            .available = alone,
            .reason = alone ? "the group has one rank"
                            : "it is for one rank only, and this group has " + std::to_string(group.members.size()),
            .score = alone ? kSelfScore : 0,
            .capabilities = self_capabilities()};
  }

  [[nodiscard]] Result<std::unique_ptr<Backend>> create(const GroupSpec& group, const Services&,
                                                        TimePoint) const override {
    if (group.members.size() != 1) {
      return Status(Errc::kUnsupported, "the backend self is for one rank only, and group " + group.id + " has " +
                                            std::to_string(group.members.size()));
    }
    return std::unique_ptr<Backend>(std::make_unique<SelfBackend>());
  }
};

}  // namespace

std::unique_ptr<Factory> make_self_factory() { return std::make_unique<SelfFactory>(); }

}  // namespace distrun::backend
