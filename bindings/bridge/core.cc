#include "bindings/bridge/core.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
namespace distrun::bridge {

CoreApi core;

std::string resolve_core(void* library) {
  std::string missing;
#define X(name)                                                           \
  core.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  if (core.name == nullptr) missing += std::string(missing.empty() ? "" : ", ") + #name;
  DISTRUN_CORE_FUNCTIONS(X)
#undef X
  return missing.empty() ? "" : "libdistrun.so lacks " + missing;
}

Attachment& attachment() {
  static auto* const the_one = new Attachment;
  return *the_one;
}

Attachment::Lease::~Lease() {
  if (owner_ == nullptr) return;
  const std::lock_guard lock(owner_->mutex_);
  if (--owner_->leases_ == 0) owner_->left_.notify_all();
}

void Attachment::Lease::watch(std::vector<distrun_handle*> handles, Flight* flight) const {
  if (core.distrun_watch_add(owner_->watch_, handles.data(), handles.size(), flight) == DISTRUN_OK) return;
  // Out of memory: no thread could be told, so this one waits.
  const auto done = [](distrun_handle* handle) { return core.distrun_poll(handle) != 0; };
  while (!std::all_of(handles.begin(), handles.end(), done)) {
    core.distrun_wait_all(handles.data(), handles.size(), -1.0, nullptr);
  }
  flight->complete();
}

std::string Attachment::attach(distrun_session* session) {
  detach();
  distrun_watch* watch = nullptr;
  if (core.distrun_watch_open(session, &watch) != DISTRUN_OK) {
    auto error = DISTRUN_INIT(distrun_error);
    core.distrun_last_error(&error);
    return error.message;
  }
  const std::lock_guard lock(mutex_);
  numbers_.clear();
  session_ = session;
  watch_ = watch;
  completer_ = std::thread([this, watch] { take_completions(watch); });
  return "";
}

void Attachment::detach() {
  std::thread completer;
  {
    std::unique_lock lock(mutex_);
    if (session_ == nullptr || detaching_) return;
    detaching_ = true;
    // With a limit: the wait() without one needs a newer libstdc++ than the wheel may.
    while (!left_.wait_for(lock, std::chrono::hours(1), [this] { return leases_ == 0; })) continue;
    completer = std::move(completer_);
  }
  core.distrun_watch_end(watch_);
  completer.join();
  core.distrun_watch_close(watch_);
  const std::lock_guard lock(mutex_);
  session_ = nullptr;
  watch_ = nullptr;
  detaching_ = false;
}

std::optional<Attachment::Lease> Attachment::lease() {
  const std::lock_guard lock(mutex_);
  if (session_ == nullptr || detaching_) return std::nullopt;
  ++leases_;
  return Lease(*this);
}

std::string Attachment::next_number(const std::string& kind, std::int32_t process_set) {
  const std::lock_guard lock(mutex_);
  return std::to_string(numbers_[{kind, process_set}]++);
}

void Attachment::forget_numbers(std::int32_t process_set) {
  const std::lock_guard lock(mutex_);
  std::erase_if(numbers_, [process_set](const auto& entry) { return entry.first.second == process_set; });
}

void Attachment::take_completions(distrun_watch* watch) {
  for (;;) {
    void* flight = nullptr;
    const std::int32_t code = core.distrun_watch_next(watch, -1.0, &flight);
    if (code == DISTRUN_OK) {
      static_cast<Flight*>(flight)->complete();
    } else if (code != DISTRUN_INTERRUPTED && code != DISTRUN_TIMEOUT) {
      return;
    }
  }
}

}  // namespace distrun::bridge
