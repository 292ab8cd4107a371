#include "runtime/backend/plugin/plugin_backend.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/backend/abort_state.h"
#include "runtime/backend/plugin/plugin_group.h"
#include "runtime/backend/plugin/worker.h"
#include "runtime/base/settings.h"

namespace distrun::backend::plugin {
namespace {

class PluginBackend final : public Backend {
 public:
  PluginBackend(std::shared_ptr<const Library> library, const GroupSpec& group, const Services& services,
                Capabilities capabilities)
      : name_(library->table().name),
        capabilities_(capabilities),
        wait_set_(services.wait_set),
        members_(group),
        group_(std::move(library), group, services, capabilities.moved_by != MovedBy::kCalls) {}

  ~PluginBackend() override {
    if (watched_fd_ >= 0) wait_set_->remove(watched_fd_);
    if (worker_ && group_.host().any_in_flight()) {
      abort({Errc::kAborted, "the group was closed while operations were in flight"});
    }
    worker_.reset();
    group_.destroy();  // before operations_, which the plug-in may still read
  }
  PluginBackend(const PluginBackend&) = delete;
  PluginBackend& operator=(const PluginBackend&) = delete;

  Status create(TimePoint deadline) {
    if (capabilities_.moved_by == MovedBy::kOwnThread) {
      worker_.emplace(group_);
      return worker_->create(deadline);
    }
    DISTRUN_RETURN_IF_ERROR(group_.create(deadline));
    const int fd = group_.wait_fd();
    if (fd < 0) return {};
    DISTRUN_RETURN_IF_ERROR(wait_set_->add(fd, EPOLLIN, [this](std::uint32_t) { ready_ = true; }));
    watched_fd_ = fd;
    return {};
  }

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }

  Status start(const Operation& operation, std::uint64_t token) override {
    if (aborted_.requested()) return aborted_.why();
    const auto [started, fresh] = operations_.try_emplace(token, operation, members_);
    DISTRUN_CHECK(fresh, "a token is used twice at the same time");
    if (worker_) {
      if (operation.alone && group_.try_now(started->second)) {
        ended_here_.push_back(token);
      } else {
        worker_->start(started->second, token);
      }
      return {};
    }
    ready_ = true;
    const Status status = group_.start(started->second, token);
    if (!status.ok()) operations_.erase(started);
    return status;
  }

  bool progress() override {
    bool moved = false;
    const bool asks = capabilities_.moved_by == MovedBy::kCalls && !operations_.empty();
    if (!worker_ && (ready_ || asks || aborted_.requested())) {
      moved = group_.progress();
      ready_ = moved;
    }
    return group_.host().any_completed() || moved || !ended_here_.empty();
  }

  void completed(std::vector<Completed>& out) override {
    const std::size_t before = out.size();
    group_.host().take(out);
    for (const std::uint64_t token : std::exchange(ended_here_, {})) out.push_back({.token = token, .status = {}});
    for (std::size_t i = before; i < out.size(); ++i) {
      operations_.erase(out[i].token);
      // The plug-in got only the code and the text of the cause. Report the complete cause.
      if (!out[i].status.ok() && aborted_.requested()) out[i].status = aborted_.why();
    }
  }

  void abort(const Status& why) override {
    aborted_.set(why);
    group_.abort(aborted_.why());
    if (wait_set_ != nullptr) wait_set_->wake();
  }

  [[nodiscard]] std::optional<EndedLink> lost_peer() const override {
    const int rank = group_.host().lost_peer();
    return rank < 0 ? std::nullopt : std::optional(EndedLink{.peer = rank});
  }

  Result<Memory> allocate(Device device, std::size_t bytes, std::span<const std::byte> element) override {
    if (device.type == DeviceType::kCpu) return Backend::allocate(device, bytes, element);
    return group_.allocate(device, bytes, element);
  }

  Result<Memory> stage(Device device, std::size_t bytes) override {
    return device.type == DeviceType::kCpu ? Backend::stage(device, bytes) : group_.stage(device, bytes);
  }

 private:
  const std::string name_;
  const Capabilities capabilities_;
  net::WaitSet* wait_set_;
  const GroupSpec members_;
  AbortState aborted_;
  std::map<std::uint64_t, PluginOperation> operations_;  // in flight; nodes do not move
  std::vector<std::uint64_t> ended_here_;                // tokens that start() has completed; completed() reports them
  PluginGroup group_;
  std::optional<Worker> worker_;
  int watched_fd_ = -1;
  bool ready_ = false;  // progress() may have something to do
};

std::uint32_t real_dtypes() {
  std::uint32_t bits = 0;
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    if (can_reduce(static_cast<DType>(dtype), ReduceOp::kMin)) bits |= 1U << static_cast<unsigned>(dtype);
  }
  return bits;
}

// Whether the settings name the backend: in "mpi" or "cpu:mpi,cuda:nccl", or as the hierarchical backend's part between
// hosts.
bool is_named(const Settings& settings, const std::string& name) {
  if (settings.between_hosts == name) return true;
  std::string_view rest = settings.backend;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    if (item == name || item.ends_with(":" + name)) return true;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return false;
}

}  // namespace

Offer offer_of(const Library& library, const GroupSpec& group, const Services& services) {
  distrun_backend_group_spec spec = spec_of(group, services, Clock::now(), DISTRUN_BACKEND_ANY_DEVICE);
  spec.asked_for = services.settings == nullptr || is_named(*services.settings, library.table().name) ? 1 : 0;
  distrun_backend_capabilities answer{};
  answer.struct_size = sizeof(answer);
  library.table().capabilities(&spec, &answer);
  const auto has = [&answer](std::uint32_t flag) { return (answer.flags & flag) != 0; };
  const bool own_thread = !has(DISTRUN_BACKEND_ASYNCHRONOUS) || has(DISTRUN_BACKEND_THREAD_AFFINE);
  const bool no_descriptor = library.table().progress != nullptr && library.table().wait_fd == nullptr;
  return {.backend = library.table().name,
          .available = answer.available != 0,
          .reason = text_of(answer.reason, sizeof(answer.reason), "the plug-in gives no reason"),
          .score = std::clamp(answer.score, 0, 100),
          .capabilities = {.ops = answer.ops & ((1U << kNumOpKinds) - 1),
                           .dtypes = answer.dtypes & ((1U << kNumDTypes) - 1),
                           .devices = answer.devices,
                           .scatter_gather = has(DISTRUN_BACKEND_SCATTER_GATHER),
                           .revocable = has(DISTRUN_BACKEND_REVOCABLE),
                           .exclusive = has(DISTRUN_BACKEND_NEEDS_TOTAL_ORDER),
                           .moved_by = own_thread      ? MovedBy::kOwnThread
                                       : no_descriptor ? MovedBy::kCalls
                                                       : MovedBy::kDescriptors},
          .library_version = answer.library_version};
}

Result<std::shared_ptr<void>> mark_of(const std::shared_ptr<const Library>& library, Device device, void* stream) {
  const distrun_backend_device* table = library->device();
  if (table == nullptr) return Status(Errc::kUnsupported, library->path() + " has no devices");
  void* mark = nullptr;
  std::array<char, 512> error{};
  const int code = table->mark(device.index, stream, &mark, error.data(), error.size());
  if (code != DISTRUN_BACKEND_OK) return status_of(code, text_of(error.data(), error.size(), "no mark"));
  return std::shared_ptr<void>(mark, [library](void* owned) { library->device()->unmark(owned); });
}

Result<std::unique_ptr<Backend>> make_backend(std::shared_ptr<const Library> library, const GroupSpec& group,
                                              const Services& services, TimePoint deadline) {
  Capabilities capabilities = offer_of(*library, group, services).capabilities;
  if (group.device != DeviceType::kCpu) {
    capabilities.scatter_gather = true;    // the executor cannot read device memory
    capabilities.dtypes &= real_dtypes();  // the engine sends no others to devices: sent_as, and TensorTable::check
  }
  auto backend = std::make_unique<PluginBackend>(std::move(library), group, services, capabilities);
  DISTRUN_RETURN_IF_ERROR(backend->create(deadline));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace distrun::backend::plugin
