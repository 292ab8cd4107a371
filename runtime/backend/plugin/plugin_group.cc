#include "runtime/backend/plugin/plugin_group.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace distrun::backend::plugin {

// The plug-in gets the runtime's dtype numbers unchanged.
#define DISTRUN_DTYPE(id, number, c_name, ...) static_assert(DISTRUN_BACKEND_##c_name == number);
#include "runtime/base/dtypes.def"
#undef DISTRUN_DTYPE

PluginOperation::PluginOperation(const Operation& operation, const GroupSpec& group) {
  segments_.reserve(operation.segments.size());
  for (const Segment& segment : operation.segments) {
    segments_.push_back({.input = segment.in, .output = segment.out, .count = segment.count});
  }
  if (operation.kind == OpKind::kAlltoall) {
    const std::size_t members = group.members.size();
    const auto self = static_cast<std::size_t>(group.index);
    for (std::size_t i = 0; i < members; ++i) {
      counts_.push_back(operation.counts[self * members + i]);
      recv_counts_.push_back(operation.counts[i * members + self]);
    }
  } else {
    counts_.assign(operation.counts.begin(), operation.counts.end());
  }
  marks_.assign(operation.marks.begin(), operation.marks.end());
  operation_ = {.struct_size = sizeof(distrun_backend_operation),
                .kind = static_cast<std::int32_t>(operation.kind),
                .dtype = static_cast<std::int32_t>(operation.dtype),
                .reduce = static_cast<std::int32_t>(operation.reduce),
                .device_type = static_cast<std::int32_t>(operation.device.type),
                .device_index = operation.device.index,
                .root = operation.root,
                .reserved = 0,
                .segments = segments_.data(),
                .num_segments = segments_.size(),
                .counts = counts_.data(),
                .prescale = operation.prescale,
                .postscale = operation.postscale,
                .recv_counts = recv_counts_.data(),
                .marks = marks_.data(),
                .num_marks = marks_.size()};
}

namespace {

// Blocks SIGPIPE for the calling thread. On the program's thread, a library may write to a connection whose peer is
// gone. A plug-in's own thread has all signals blocked.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigset_t pending;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    if (sigpending(&pending) == 0) was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    constexpr timespec kNow{};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &kNow);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

// The same ranks may form one group for each kind of device. The id is part of store keys, of the secret for MACs and
// of the names that libraries use. So each device's group gets its own id.
GroupSpec named_for_device(GroupSpec group) {
  group.id += "/" + std::string(name_of(group.device));
  return group;
}

}  // namespace

distrun_backend_group_spec spec_of(const GroupSpec& group, const Services& services, TimePoint deadline,
                                   std::int32_t device_type) {
  static_assert(sizeof(int) == sizeof(std::int32_t));
  const auto seconds = std::chrono::duration<double>(deadline - Clock::now()).count();
  return {.struct_size = sizeof(distrun_backend_group_spec),
          .index = group.index,
          .members = group.members.data(),
          .num_members = group.members.size(),
          .id = group.id.c_str(),
          .local_host = services.local_host.c_str(),
          .seconds = std::max(seconds, 0.0),
          .store = nullptr,
          .device_type = device_type,
          .reserved = 0,
          .asked_for = 1};
}

PluginGroup::PluginGroup(std::shared_ptr<const Library> library, const GroupSpec& group, const Services& services,
                         bool waited_for)
    : library_(std::move(library)),
      spec_(named_for_device(group)),
      services_(services),
      host_(services.wait_set, waited_for, services.key, library_->table().name, spec_.id),
      store_(*services.store, std::string(library_->table().name) + "/" + spec_.id + ":") {}

PluginGroup::~PluginGroup() {
  destroy();
  // After an abort the job ends, so do not wait for the store. A job of one rank has no store.
  if (!aborted_ && services_.store != nullptr) store_.leave(static_cast<int>(spec_.members.size()));
}

Status PluginGroup::create(TimePoint deadline) {
  distrun_backend_group_spec spec = spec_of(spec_, services_, deadline, static_cast<std::int32_t>(spec_.device));
  spec.store = &store_.table();
  std::array<char, 512> error{};
  const int code = library_->table().create_group(&spec, host_.handle(), &group_, error.data(), error.size());
  if (code != DISTRUN_BACKEND_OK) {
    group_ = nullptr;
    return status_of(code, text_of(error.data(), error.size(), library_->path() + " could not make the group"));
  }
  return group_ != nullptr ? Status()
                           : Status(Errc::kInternal, library_->path() + " returned neither a group nor an error");
}

Status PluginGroup::start(const PluginOperation& operation, std::uint64_t token) {
  host_.expect(token);
  const int code = library_->table().start(group_, operation.get(), token);
  if (code == DISTRUN_BACKEND_OK) return {};
  host_.forget(token);
  return status_of(code, "the backend " + std::string(library_->table().name) +
                             " refused the operation. Choose another one with --backend");
}

bool PluginGroup::try_now(const PluginOperation& operation) {
  const auto now = library_->try_now();
  if (now == nullptr) return false;
  const NoPipeSignal held;
  return now(group_, operation.get()) == DISTRUN_BACKEND_OK;
}

bool PluginGroup::progress() { return has_progress() && library_->table().progress(group_) != 0; }

Result<Memory> PluginGroup::allocate(Device device, std::size_t bytes, std::span<const std::byte> element) {
  const distrun_backend_device* table = library_->device();
  if (table == nullptr) return Status(Errc::kUnsupported, library_->path() + " has no devices");
  void* memory = nullptr;
  std::array<char, 512> error{};
  const int code =
      table->allocate(device.index, bytes, element.data(), element.size(), &memory, error.data(), error.size());
  if (code != DISTRUN_BACKEND_OK) return status_of(code, text_of(error.data(), error.size(), "no memory"));
  return Memory(static_cast<std::byte*>(memory), [library = library_, index = device.index](std::byte* owned) {
    library->device()->release(index, owned);
  });
}

Result<Memory> PluginGroup::stage(Device device, std::size_t bytes) {
  const distrun_backend_device* table = library_->device();
  if (table == nullptr || table->struct_size < sizeof(distrun_backend_device) || table->stage == nullptr) {
    return Status(Errc::kUnsupported, library_->path() + " has no memory that the host and devices share");
  }
  void* memory = nullptr;
  std::array<char, 512> error{};
  const int code = table->stage(device.index, bytes, &memory, error.data(), error.size());
  if (code != DISTRUN_BACKEND_OK) return status_of(code, text_of(error.data(), error.size(), "no memory"));
  return Memory(static_cast<std::byte*>(memory), [library = library_, index = device.index](std::byte* owned) {
    library->device()->unstage(index, owned);
  });
}

int PluginGroup::wait_fd() { return library_->table().wait_fd == nullptr ? -1 : library_->table().wait_fd(group_); }

void PluginGroup::abort(const Status& why) {
  aborted_ = true;
  library_->table().abort(group_, static_cast<std::int32_t>(why.code()), why.message().c_str());
}

void PluginGroup::destroy() {
  if (group_ != nullptr) library_->table().destroy(group_);
  group_ = nullptr;
}

}  // namespace distrun::backend::plugin
