#include "runtime/backend/plugin/host_group.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <utility>

namespace distrun::backend::plugin {
namespace {

constexpr double kLongest = 1e6;  // seconds; a longer time would overflow the clock

std::atomic<int> g_sessions_in_job{0};

void host_complete(distrun_backend_host_group* group, std::uint64_t token, std::int32_t code, const char* message) {
  Status status;
  if (code != DISTRUN_BACKEND_OK) status = status_of(code, message == nullptr ? "the plug-in gave no reason" : message);
  reinterpret_cast<HostGroup*>(group)->complete(token, std::move(status));
}

void host_peer_lost(distrun_backend_host_group* group, std::int32_t world_rank) {
  reinterpret_cast<HostGroup*>(group)->peer_lost(world_rank);
}

std::int32_t host_mac(distrun_backend_host_group* group, const void* data, std::uint64_t size, void* mac) {
  const auto result = reinterpret_cast<HostGroup*>(group)->mac({static_cast<const std::byte*>(data), size});
  if (!result.ok()) return static_cast<std::int32_t>(result.status().code());
  std::memcpy(mac, result->data(), result->size());
  return DISTRUN_BACKEND_OK;
}

std::int32_t host_in_job() { return g_sessions_in_job > 0 ? 1 : 0; }

}  // namespace

InJob::InJob() { ++g_sessions_in_job; }
InJob::~InJob() { --g_sessions_in_job; }

void HostGroup::expect(std::uint64_t token) {
  const MutexLock lock(mutex_);
  in_flight_.insert(token);
}

void HostGroup::forget(std::uint64_t token) {
  const MutexLock lock(mutex_);
  in_flight_.erase(token);
}

void HostGroup::complete(std::uint64_t token, Status status) {
  {
    const MutexLock lock(mutex_);
    if (in_flight_.erase(token) == 0) return;
    completed_.push_back({.token = token, .status = std::move(status)});
  }
  if (waited_for_ && wait_set_ != nullptr) wait_set_->wake();
}

void HostGroup::peer_lost(int world_rank) {
  {
    const MutexLock lock(mutex_);
    if (lost_ < 0) lost_ = world_rank;
  }
  if (wait_set_ != nullptr) wait_set_->wake();
}

Result<net::Mac> HostGroup::mac(std::span<const std::byte> data) const {
  if (!secret_) return Status(Errc::kUnsupported, "this group has no key");
  return secret_->mac(data);
}

void HostGroup::take(std::vector<Completed>& out) {
  const MutexLock lock(mutex_);
  std::ranges::move(completed_, std::back_inserter(out));
  completed_.clear();
}

bool HostGroup::any_completed() const {
  const MutexLock lock(mutex_);
  return !completed_.empty();
}

bool HostGroup::any_in_flight() const {
  const MutexLock lock(mutex_);
  return !in_flight_.empty();
}

int HostGroup::lost_peer() const {
  const MutexLock lock(mutex_);
  return lost_;
}

HostStore::HostStore(net::Store& store, std::string prefix)
    : store_(store),
      prefix_(std::move(prefix)),
      table_{.struct_size = sizeof(distrun_backend_store), .context = this, .set = {}, .get = {}, .add = {}} {
  table_.set = [](void* context, const char* key, const void* value, std::uint64_t size) -> std::int32_t {
    auto* self = static_cast<HostStore*>(context);
    return static_cast<std::int32_t>(
        self->store_.set(self->prefix_ + key, std::string(static_cast<const char*>(value), size)).code());
  };
  table_.get = [](void* context, const char* key, double seconds, void* buffer, std::uint64_t capacity,
                  std::uint64_t* size) -> std::int32_t {
    auto* self = static_cast<HostStore*>(context);
    const auto value = self->store_.get(self->prefix_ + key, deadline_after(std::clamp(seconds, 0.0, kLongest)));
    if (!value.ok()) return static_cast<std::int32_t>(value.status().code());
    *size = value->size();
    const std::size_t fits = std::min<std::size_t>(capacity, value->size());
    if (fits > 0) std::memcpy(buffer, value->data(), fits);
    return DISTRUN_BACKEND_OK;
  };
  table_.add = [](void* context, const char* key, std::int64_t delta, std::int64_t* result) -> std::int32_t {
    auto* self = static_cast<HostStore*>(context);
    const auto sum = self->store_.add(self->prefix_ + key, delta);
    if (sum.ok()) *result = *sum;
    return static_cast<std::int32_t>(sum.ok() ? Errc::kOk : sum.status().code());
  };
}

// Keys that cannot be erased stay in the store until the job ends.
void HostStore::leave(int members) { (void)store_.erase(prefix_, members); }

const distrun_backend_host& host_table() {
  static const distrun_backend_host table{.struct_size = sizeof(distrun_backend_host),
                                          .version = DISTRUN_BACKEND_VERSION,
                                          .complete = &host_complete,
                                          .peer_lost = &host_peer_lost,
                                          .mac = &host_mac,
                                          .in_job = &host_in_job};
  return table;
}

Status status_of(int code, const std::string& text) {
  const bool known = code > static_cast<int>(Errc::kOk) && code <= static_cast<int>(Errc::kInternal);
  return {known ? static_cast<Errc>(code) : Errc::kInternal, text};
}

std::string text_of(const char* buffer, std::size_t size, const std::string& otherwise) {
  const std::size_t length = ::strnlen(buffer, size);
  return length == 0 ? otherwise : std::string(buffer, length);
}

}  // namespace distrun::backend::plugin
